// Arrays of bf16 with their widened twins, for kernels that take either (kernels/floats.h). Nothing is aligned: arrays
// begin one element behind an allocation.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "kernels/floats.h"

namespace bitgrad::test {

// Random bf16 values as bits, with zeros of both signs, subnormals and large ones; NaN and Inf where asked for.
inline std::vector<uint16_t> narrow_values(int64_t n, uint32_t seed, bool nonfinite = false) {
  static constexpr uint16_t kSpecial[] = {0x0000, 0x8000, 0x0001, 0x8003, 0x007F, 0x7F00, 0xFF00, 0x3F80};
  static constexpr uint16_t kNonFinite[] = {0x7F80, 0xFF80, 0x7FC0, 0xFF81};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<uint16_t> x;
  for (int64_t i = 0; i < n; ++i) {
    x.push_back(bf16_from_float(normal(random)));
    if (random() % 12 == 0) x.back() = kSpecial[random() % std::size(kSpecial)];
    if (nonfinite && random() % 40 == 0) x.back() = kNonFinite[random() % std::size(kNonFinite)];
  }
  return x;
}

inline std::vector<float> widened_values(const std::vector<uint16_t>& x) {
  std::vector<float> out;
  for (const uint16_t v : x) out.push_back(bf16_to_float(v));
  return out;
}

// What a kernel reads, in bf16 or widened.
class NarrowSource {
 public:
  NarrowSource(int64_t n, uint32_t seed, bool nonfinite = false) : narrow_(narrow_values(n + 1, seed, nonfinite)) {
    wide_ = widened_values(narrow_);
  }
  kernels::FloatsIn in(bool bf16) const {
    return bf16 ? kernels::FloatsIn(narrow_.data() + 1, dtypes::bf16) : kernels::FloatsIn(wide_.data() + 1);
  }
  // To be overwritten.
  kernels::FloatsOut out(bool bf16) {
    return bf16 ? kernels::FloatsOut(narrow_.data() + 1, dtypes::bf16) : kernels::FloatsOut(wide_.data() + 1);
  }
  // Its elements in bf16 as they are now, those of the wide array rounded.
  std::vector<uint16_t> rounded(bool bf16) const {
    if (bf16) return narrow_;
    std::vector<uint16_t> out;
    for (const float v : wide_) out.push_back(bf16_from_float(v));
    return out;
  }
  const std::vector<float>& wide() const { return wide_; }

 private:
  std::vector<uint16_t> narrow_;
  std::vector<float> wide_;
};

inline bool is_nan_bf16(uint16_t x) { return (x & 0x7FFFu) > 0x7F80u; }

// Number of elements that differ; two NaN are equal.
inline int64_t differing_values(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] && !(is_nan_bf16(a[i]) && is_nan_bf16(b[i]));
  return count;
}
inline int64_t differing_values(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i)
    count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]));
  return count;
}

}  // namespace bitgrad::test
