// Statistics of the blocks that share a scale, and scales made from them. Shared by the schemes; docs/numerics.md
// section 2.
#pragma once

#include <string_view>
#include <vector>

#include "bitgrad/kernels/reduce.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

inline constexpr float kSmallestNormal = 0x1p-126f;

// The blocks of x by a granularity, in the order of their scales. A tensor without elements has empty blocks only.
class Blocks {
 public:
  // scheme: for errors. Throws Error unless x is fp32, canonical and without scales.
  Blocks(std::string_view scheme, const Granularity& granularity, const Tensor& x);

  int64_t count() const { return count_; }
  bool empty() const { return x_.numel() == 0; }
  // Elements of a block, a ragged one's true number, as the divisor of a mean.
  float size(int64_t block) const;
  // One statistic per block; zeros when empty(). Throws Error(kNonFinite) when x holds NaN or Inf.
  std::vector<float> statistic(ReduceRule rule) const;

  std::string_view scheme() const { return scheme_; }
  const Tensor& tensor() const { return x_; }

 private:
  std::string_view scheme_;
  Granularity granularity_;
  Tensor x_;
  int64_t count_;
};

// 2^ceil(log2 s) by the exponent bits, s > 0. Inf past 2^127.
float ceil_pow2(float s);

// One scale after the modifier pow2. Throws Error(kNonFinite) that names the block when the scale is not finite (hi -
// lo = Inf and the like).
float finish_scale(const QuantSpec& spec, const Blocks& blocks, int64_t block, float scale);
// One real offset: the same check, no modifier.
float finish_offset(const Blocks& blocks, int64_t block, float offset);

// Scales [count] from scale_of(block), which applies eps itself; empty blocks get eps.
template <typename ScaleOf>
std::shared_ptr<const Tensor> make_scales(const QuantSpec& spec, const Blocks& blocks, float eps, ScaleOf&& scale_of) {
  const Tensor out = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
  float* s = out.as<float>();
  for (int64_t j = 0; j < blocks.count(); ++j)
    s[j] = finish_scale(spec, blocks, j, blocks.empty() ? eps : scale_of(static_cast<size_t>(j)));
  return std::make_shared<const Tensor>(out);
}

}  // namespace bitgrad::detail
