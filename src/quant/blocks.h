// Statistics of the blocks that share a scale, and scales made from them. Shared by the schemes; docs/numerics.md
// section 2.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/kernels/reduce.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

inline constexpr float kSmallestNormal = 0x1p-126f;

// Elements of block `block` of a [rows, cols] matrix, a ragged one's true number.
int64_t block_size(const Granularity& granularity, int64_t rows, int64_t cols, int64_t block);

// The blocks of x by a granularity, in the order of their scales. A tensor without elements has empty blocks only.
class Blocks {
 public:
  // scheme: for errors. Throws Error unless x is fp32, canonical and without scales.
  Blocks(std::string_view scheme, const Granularity& granularity, const Tensor& x);

  int64_t count() const { return count_; }
  bool empty() const { return x_.numel() == 0; }
  // block_size as the divisor of a mean.
  float size(int64_t block) const;
  // One statistic per block; of a block without elements 0 (kMin +Inf, kMax -Inf). center: one number per block, for
  // the rules that read it. Throws Error(kNonFinite) when x holds NaN or Inf.
  std::vector<float> statistic(ReduceRule rule, std::span<const float> center = {}) const;
  // kSum of numbers that need not be finite.
  std::vector<float> sums() const;
  // size of every block.
  std::vector<float> sizes() const;
  // mean abs x of each block.
  std::vector<float> mean_abs() const;

  std::string_view scheme() const { return scheme_; }
  // "the numbers of x [2,3] fp32", for errors.
  std::string what() const { return concat("the numbers of x ", x_); }

 private:
  void reduce_to(ReduceRule rule, std::span<const float> center, uint32_t* flags, float* out) const;

  std::string_view scheme_;
  Granularity granularity_;
  Tensor x_;
  int64_t count_;
};

// 2^ceil(log2 s) by the exponent bits, s > 0. Inf past 2^127.
float ceil_pow2(float s);

// One scale after the modifier pow2. Throws Error(kNonFinite) that names `what` (whose numbers are too large) and the
// block when the scale is not finite (hi - lo = Inf and the like).
float finish_scale(const QuantSpec& spec, std::string_view scheme, const std::string& what, int64_t block, float scale);
// One real offset, or other number `name` of a block: the same check, no modifier.
float finish_offset(std::string_view scheme, const std::string& what, int64_t block, float number,
                    std::string_view name = "offset");

// [numbers] as fp32 quantizer state.
std::shared_ptr<const Tensor> state_tensor(std::span<const float> numbers);

// Scales [count] from scale_of(block), which applies eps itself; empty blocks get eps.
template <typename ScaleOf>
std::shared_ptr<const Tensor> make_scales(const QuantSpec& spec, const Blocks& blocks, float eps, ScaleOf&& scale_of) {
  const Tensor out = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
  float* s = out.as<float>();
  for (int64_t j = 0; j < blocks.count(); ++j)
    s[j] =
        finish_scale(spec, blocks.scheme(), blocks.what(), j, blocks.empty() ? eps : scale_of(static_cast<size_t>(j)));
  return std::make_shared<const Tensor>(out);
}
// Params of a scheme with scales only.
template <typename ScaleOf>
QuantParams scale_params(const QuantSpec& spec, const Blocks& blocks, float eps, ScaleOf&& scale_of) {
  QuantParams params;
  params.scheme = blocks.scheme();
  params.granularity = spec.granularity;
  params.scale = make_scales(spec, blocks, eps, scale_of);
  return params;
}

}  // namespace bitgrad::detail
