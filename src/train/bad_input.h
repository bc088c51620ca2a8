// Samples that hold NaN or Inf: what training and evaluation then find in the model is not the model's fault.
#pragma once

#include <string>
#include <string_view>

#include "bitgrad/base/error.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// "x [2,5] fp32 holds NaN at [0,1]", the first of them; empty: all of x is finite, or x holds ids. On the CPU one fast
// read of x; from a device x is copied: for errors.
std::string non_finite_input(const Tensor& x);

// Throws Error(kNonFinite) of an input that non_finite_input found. what_moved: a sentence about the parameters, or "".
[[noreturn]] void fail_input(const std::string& input, std::string_view what_moved);

// Both in one, for an evaluation.
void check_input(const Tensor& x);

}  // namespace bitgrad::detail
