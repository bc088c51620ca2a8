// Rows of matrices in another order and on top of each other: codes go with their scales, nothing is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bitgrad/tensor/tensor.h"
#include "train/interop/tensor_map.h"

namespace bitgrad::interop {

// Which row of the parameter is row r of the file's tensor, for r = 0 .. rows - 1. interleaved: the file's rope turns
// neighbours (2i, 2i + 1) of a head, the model's halves (i, i + d/2); else the other way round. Without heads that are
// reordered: begin, begin + 1, ...
std::vector<int64_t> rows_in_file(const MappedTensor& mapped, bool interleaved);

// A new tensor of these rows of a matrix (or numbers of a vector), on the CPU. Scales that are not of the whole tensor
// become those of rows, or of groups along a row.
Tensor take_rows(const Tensor& matrix, std::span<const int64_t> rows);
// Matrices of one dtype and width, in the same order. Scales come out as coarse as they can be: one where all are
// equal, one a row where those of each row are, else those of groups.
Tensor stack_rows(const std::vector<Tensor>& parts);
// Row r of the result is row `rows`^-1 (r): undoes take_rows of a permutation of 0 .. n - 1.
std::vector<int64_t> inverse_order(std::span<const int64_t> order);

// The same codes with scales and offsets rounded to fp16.
Tensor with_fp16_scales(const Tensor& codes);
// The same codes, scales times a number.
Tensor with_scales_times(const Tensor& codes, float factor);

}  // namespace bitgrad::interop
