// Learned steps that carry no signal, and their new values. docs/numerics.md section 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// Steps are compared with the values that they quantize in optimizer steps that are multiples of this.
inline constexpr int64_t kSignalEvery = 64;

// Blocks whose step (clip) is at its floor or, if x is given (fp32 on the CPU), whose values are all at the ends of the
// codes, and whose fit is at least 16 times the step. `learned` on the CPU.
std::vector<int64_t> steps_without_signal(const QuantSpec& spec, std::span<const Tensor> learned, float floor,
                                          const Tensor* x);
// Copies those elements of `from` to `to`, both on the CPU, but at least `floor`. Returns how many changed.
int64_t copy_elements(const std::vector<int64_t>& which, const Tensor& from, const Tensor& to, float floor);
// Warns of n such steps among `all`, of the weights or of the input of a layer.
void warn_of_refit(const std::string& path, int64_t n, int64_t all, const char* of);

}  // namespace bitgrad::detail
