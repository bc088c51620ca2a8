// Statistics of the blocks that share a scale, and scales made from them. Shared by the schemes; docs/numerics.md
// section 2.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "bitgrad/kernels/reduce.h"
#include "bitgrad/quant/quantizer.h"
#include "kernels/map/fill.h"
#include "kernels/map/scales.h"
#include "quant/data_flag.h"

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
  // block_size, for maps.
  maps::q::BlockSizes sizes() const;
  // One statistic per block, fp32 [count]; of a block without elements 0 (kMin +Inf, kMax -Inf). center: one number per
  // block, for the rules that read it. Error(kNonFinite) when x holds NaN or Inf.
  Tensor statistic(kernels::ReduceRule rule, const Tensor& center = {}) const;
  // kMin and kMax of each block, as statistic gives them.
  struct Ranges {
    Tensor low, high;
  };
  Ranges ranges() const;
  // max(times * mean / divisor, floor) of each block, the mean of what `rule` sums; 0 where there are no elements.
  // Quantizer state. Error(kNonFinite) that calls it `name`.
  struct MeanOptions {
    float times = 1.0f, divisor = 1.0f, floor = -std::numeric_limits<float>::infinity();
    std::string_view name = "mean";
  };
  Tensor means(kernels::ReduceRule rule, const MeanOptions& options) const;
  // kSum of numbers that need not be finite, to out [count].
  void sums_to(float* out) const;

  std::string_view scheme() const { return scheme_; }
  // "the numbers of x [2,3] fp32", for errors.
  std::string what() const { return concat("the values of x ", x_); }
  // The error of NaN or Inf in x.
  std::function<void()> not_finite() const;

 private:
  kernels::ReduceArgs arguments() const;
  void reduce_to(kernels::ReduceRule rule, const float* center, uint32_t* flags, float* out) const;

  std::string_view scheme_;
  Granularity granularity_;
  Tensor x_;
  int64_t count_;
};

// For a map that makes one number per block: they must be finite. On the CPU the numbers are looked at, on other
// devices the map sets a flag.
class BlockCheck {
 public:
  BlockCheck();
  // For BlockOut::flags; nullptr on the CPU.
  uint32_t* flags() const { return flag_ ? flag_->word() : nullptr; }
  // Error(kNonFinite) that names `what` (whose numbers are too large) and, on the CPU, the block.
  void numbers(const Tensor& made, std::string_view scheme, const std::string& what,
               std::string_view name = "scale") const;
  void numbers(const Tensor& made, const Blocks& blocks, std::string_view name = "scale") const;
  // Another check of the same flag.
  void fails(std::function<void()> fail) const;

 private:
  std::optional<DataFlag> flag_;
};

// Error(kNonFinite) when one number of block `block` is not finite.
void require_finite(std::string_view scheme, const std::string& what, std::string_view name, int64_t block,
                    float number);

// fp32 [count] of one number, quantizer state.
Tensor filled(int64_t count, float number);
inline std::shared_ptr<const Tensor> shared(const Tensor& t) { return std::make_shared<const Tensor>(t); }

// Scales [count] by a map over the blocks that writes BlockOut `.out`; empty blocks get eps.
template <typename Map>
Tensor make_scales(const QuantSpec& spec, const Blocks& blocks, float eps, Map map) {
  if (blocks.empty()) return filled(blocks.count(), maps::q::rounded_scale(scale_rounding(spec), eps));
  const Tensor scale = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
  const BlockCheck check;
  map.out = {scale.as<float>(), check.flags(), scale_rounding(spec)};
  run_map(map, blocks.count());
  check.numbers(scale, blocks);
  return scale;
}
// Params of a scheme with scales only.
template <typename Map>
QuantParams scale_params(const QuantSpec& spec, const Blocks& blocks, float eps, const Map& map) {
  QuantParams params;
  params.scheme = blocks.scheme();
  params.granularity = spec.granularity;
  params.scale = shared(make_scales(spec, blocks, eps, map));
  return params;
}

}  // namespace bitgrad::detail
