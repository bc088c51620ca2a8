// Learned steps that carry no signal, and their new values. docs/numerics.md section 3.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// Steps are compared with the values that they quantize in optimizer steps that are multiples of this.
inline constexpr int64_t kSignalEvery = 64;

// What the warning names.
struct RefitOf {
  std::string path;
  const char* values;             // "weights" or "input"
  std::shared_ptr<int64_t> told;  // how many steps it was said of; 0: not yet
};
// Says once that `n` of `all` steps were fitted again; nothing for 0.
void tell_refit(const RefitOf& of, int64_t n, int64_t all);

// Fits steps (clips) that are at `floor` to x again, and in steps that are multiples of kSignalEvery also those whose
// values x are all at the ends of the codes, where the fit is at least 16 times the step. `learned`: the scheme's
// parts, written in place; x: the values that they quantize (fp32, bf16, or int32 with a scale). Does not wait for a
// device: the warning follows when errors are next polled.
void refit_steps(const QuantSpec& spec, std::span<const Tensor> learned, float floor, const Tensor& x, int64_t step,
                 const RefitOf& of);

}  // namespace bitgrad::detail
