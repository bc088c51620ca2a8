// Family pointwise: functions of two arrays, and copies, over up to 4 axes. Each array has its own step along each
// axis, so broadcasting (a step of 0), permuting, slicing and concatenating are uses of one kernel.
//
// Elements are fp32 or bf16, mixed as the caller likes: bf16 is widened when it is read, the function is computed in
// fp32, and a bf16 result is rounded once, to nearest even. fp64 is for references: all three arrays, on the CPU alone.
// Every path of every ISA and device gives the same bits: one operation an element.
#pragma once

#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels {

enum class PointwiseOp : uint8_t {
#define BITGRAD_POINTWISE(name, value) name,
#include "bitgrad/kernels/pointwise.inc"
#undef BITGRAD_POINTWISE
  kCount
};
std::string_view pointwise_name(PointwiseOp op);

inline constexpr int kPointwiseAxes = 4;

// Element (i0, i1, i2, i3) lies at data + sum of i[axis] * step[axis] elements of `dtype`.
struct StridedInput {
  const void* data = nullptr;
  DType dtype = dtypes::fp32;
  int64_t step[kPointwiseAxes] = {};  // 0 repeats an element
};
struct StridedOutput {
  void* data = nullptr;
  DType dtype = dtypes::fp32;
  int64_t step[kPointwiseAxes] = {};  // no two indices name one element
};

// y = f(a, b). y may be an operand whose steps it has, and overlaps none otherwise.
struct PointwiseArgs {
  PointwiseOp op = PointwiseOp::add;
  int64_t size[kPointwiseAxes] = {1, 1, 1, 1};  // outermost first; an axis that is not used has 1
  StridedInput a = {}, b = {};
  StridedOutput y = {};
};
void pointwise(const PointwiseArgs& args);

// y = x: bit for bit where the dtypes are equal (any dtype of 8, 16, 32 or 64 bits), else fp32 to bf16 (nearest even)
// or bf16 to fp32. y overlaps x nowhere.
struct StridedCopyArgs {
  int64_t size[kPointwiseAxes] = {1, 1, 1, 1};
  StridedInput x = {};
  StridedOutput y = {};
};
void strided_copy(const StridedCopyArgs& args);

}  // namespace bitgrad::kernels
