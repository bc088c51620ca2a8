// Family pointwise: functions of two arrays, and copies, over up to 4 axes. Each array has its own step along each
// axis, so broadcasting (a step of 0), permuting, slicing and concatenating all use the same kernel.
//
// Elements are fp32 or bf16 in any combination: bf16 is widened on load, the function is computed in fp32, and a bf16
// result is rounded once to nearest even. fp64 is for references, on the CPU only, and then for all three arrays. Every
// ISA and device gives the same bits: one operation per element.
#pragma once

#include <cstdint>
#include <string_view>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::kernels {

enum class PointwiseOp : uint8_t {
#define BITGRAD_POINTWISE(name, value) name,
#include "kernels/pointwise.inc"
#undef BITGRAD_POINTWISE
  kCount
};

inline constexpr int kPointwiseAxes = 4;

// Element (i0, i1, i2, i3) is at data + sum of i[axis] * step[axis], in elements of `dtype`.
struct StridedInput {
  const void* data = nullptr;
  DType dtype = dtypes::fp32;
  int64_t step[kPointwiseAxes] = {};  // in elements; 0 repeats an element
};
struct StridedOutput {
  void* data = nullptr;
  DType dtype = dtypes::fp32;
  int64_t step[kPointwiseAxes] = {};  // in elements; no two indices may map to the same element
};

// y = f(a, b). y may alias an operand with the same steps; otherwise it must not overlap one.
struct PointwiseArgs {
  PointwiseOp op = PointwiseOp::add;
  int64_t size[kPointwiseAxes] = {1, 1, 1, 1};  // outermost first; 1 for unused axes
  StridedInput a = {}, b = {};
  StridedOutput y = {};
};
void pointwise(const PointwiseArgs& args);

// y = x. Bit for bit if the dtypes are equal (any dtype of 8, 16, 32 or 64 bits); otherwise fp32 to bf16 (nearest even)
// or bf16 to fp32. y must not overlap x.
struct StridedCopyArgs {
  int64_t size[kPointwiseAxes] = {1, 1, 1, 1};
  StridedInput x = {};
  StridedOutput y = {};
};
void strided_copy(const StridedCopyArgs& args);

}  // namespace bitgrad::kernels
