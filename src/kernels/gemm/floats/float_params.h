// Applies the parameters of quantized values to floats: v = s * (v - z), s * v or s * v + m, each operation rounded
// once.
#pragma once

#include <cstdint>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::kernels::gemm_detail {

// v[j] for element (r, c0 + j) of the stored matrix, j < n. The bits do not depend on the instruction set.
void apply_params(const ScaleMap& map, int64_t r, int64_t c0, int64_t n, float* v);
void apply_params(const ScaleMap& map, int64_t r, int64_t c0, int64_t n, double* v);

// Reads codes and applies parameters in one step, with the same bits: out[j] = value of element (r, c0 + j) of
// canonical codes whose row r begins at `row`; without parameters, the code value. Returns false without doing anything
// if the machine, the width of the codes or the start of a group is not supported.
bool values_by_vectors(DType dtype, const void* row, const ScaleMap& map, int64_t r, int64_t c0, int64_t n, float* out);

}  // namespace bitgrad::kernels::gemm_detail
