// Detects samples with NaN or Inf. Whatever training or evaluation then finds is not the model's fault.
#pragma once

#include <string>
#include <string_view>

#include "bitgrad/base/error.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Describes the first non-finite value, e.g. "x [2,5] fp32 holds NaN at [0,1]"; empty if x is finite or holds ids. On
// the CPU this is one fast read of x; from a device x is copied, so call it only after an error.
std::string non_finite_input(const Tensor& x);

// Throws Error(kNonFinite) for `input`, a text from non_finite_input. what_moved: a sentence about the parameters, or
// "".
[[noreturn]] void fail_input(const std::string& input, std::string_view what_moved);

// Both in one, for evaluation.
void check_input(const Tensor& x);

}  // namespace bitgrad::detail
