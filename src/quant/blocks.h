// Statistics of the blocks that share a scale, and scales computed from them. Shared by the schemes; docs/numerics.md
// section 2.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "bitgrad/quant/quantizer.h"
#include "kernels/flag.h"
#include "kernels/map/fill.h"
#include "kernels/map/scales.h"
#include "kernels/reduce.h"

namespace bitgrad::detail {

inline constexpr float kSmallestNormal = 0x1p-126f;

// Number of elements of block `block` of a [rows, cols] matrix; exact for ragged blocks.
int64_t block_size(const Granularity& granularity, int64_t rows, int64_t cols, int64_t block);

// ---- data errors found while fitting scales, on every device

// While alive, data errors of fits on this thread, on a device other than the CPU, set kFlagNonFinite in `word` (on
// that device) instead of failing later. The caller must then discard the results: they are valid codes and scales, but
// meaningless. Has no effect on the CPU, where errors are thrown at once and the caller catches them.
class FlagScope {
 public:
  explicit FlagScope(uint32_t* word);
  ~FlagScope();
  FlagScope(const FlagScope&) = delete;
  FlagScope& operator=(const FlagScope&) = delete;

 private:
  uint32_t* outer_;
};

// The flag word for one check of data: that of the enclosing FlagScope if there is one, otherwise its own.
class DataFlag {
 public:
  DataFlag();
  uint32_t* word() const { return own_ ? own_->word() : scope_; }
  // As FlagWord::check; does nothing inside a FlagScope.
  void check(std::function<void()> fail) const {
    if (own_) own_->check(std::move(fail));
  }

 private:
  uint32_t* scope_;
  std::optional<FlagWord> own_;
};

// The blocks of x under a granularity, in the order of their scales. If x has no elements, all blocks are empty.
class Blocks {
 public:
  // `scheme` appears in errors. Throws Error unless x is fp32 or bf16, canonical and without scales.
  Blocks(std::string_view scheme, const Granularity& granularity, const Tensor& x);

  int64_t count() const { return count_; }
  bool empty() const { return x_.numel() == 0; }
  // The same sizes as block_size, for maps.
  maps::q::BlockSizes sizes() const;
  // One statistic per block, fp32 [count]; 0 for an empty block (kMin: +Inf, kMax: -Inf). `center`: one value per
  // block, for rules that use it. Error(kNonFinite) if x contains NaN or Inf.
  Tensor statistic(kernels::ReduceRule rule, const Tensor& center = {}) const;
  // kMin and kMax of each block, as returned by statistic.
  struct Ranges {
    Tensor low, high;
  };
  Ranges ranges() const;
  // max(times * mean / divisor, floor) per block, where the mean is that of the terms that `rule` sums; 0 for empty
  // blocks. Memory kind quant_state. Error(kNonFinite) that calls the result `name`.
  struct MeanOptions {
    float times = 1.0f, divisor = 1.0f, floor = -std::numeric_limits<float>::infinity();
    std::string_view name = "mean";
  };
  Tensor means(kernels::ReduceRule rule, const MeanOptions& options) const;
  // Writes kSum of values that need not be finite to out [count].
  void sums_to(float* out) const;

  std::string_view scheme() const { return scheme_; }
  // Describes x in errors, e.g. "the values of x [2,3] fp32".
  std::string what() const { return concat("the values of x ", x_); }
  // Throws the error for NaN or Inf in x when called.
  std::function<void()> not_finite() const;

 private:
  kernels::ReduceArgs arguments() const;
  void reduce_to(kernels::ReduceRule rule, const float* center, uint32_t* flags, float* out) const;

  std::string_view scheme_;
  Granularity granularity_;
  Tensor x_;
  int64_t count_;
};

// Checks that a map with one result per block produced finite values. On the CPU the results are inspected; on other
// devices the map sets a flag.
class BlockCheck {
 public:
  BlockCheck();
  // For BlockOut::flags; nullptr on the CPU.
  uint32_t* flags() const { return flag_ ? flag_->word() : nullptr; }
  // Error(kNonFinite) that names `what` (the values that are too large) and, on the CPU, the block.
  void numbers(const Tensor& made, std::string_view scheme, const std::string& what,
               std::string_view name = "scale") const;
  void numbers(const Tensor& made, const Blocks& blocks, std::string_view name = "scale") const;
  // Another check of the same flag.
  void fails(std::function<void()> fail) const;

 private:
  std::optional<DataFlag> flag_;
};

// Error(kNonFinite) if `number`, the result of block `block`, is not finite.
void require_finite(std::string_view scheme, const std::string& what, std::string_view name, int64_t block,
                    float number);

// fp32 [count], all equal to `number`, memory kind quant_state.
Tensor filled(int64_t count, float number);
inline std::shared_ptr<const Tensor> shared(const Tensor& t) { return std::make_shared<const Tensor>(t); }
inline QuantParams params_with(std::string_view scheme, const QuantSpec& spec, const Tensor& scale) {
  return {.scheme = std::string(scheme), .granularity = spec.granularity, .scale = shared(scale)};
}

// Scales [count] from a map over the blocks that writes BlockOut `.out`; eps for empty blocks.
template <typename Map>
Tensor make_scales(const QuantSpec& spec, const Blocks& blocks, float eps, Map map) {
  if (blocks.empty()) return filled(blocks.count(), maps::q::rounded_scale(scale_rounding(spec), eps));
  Tensor scale = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
  const BlockCheck check;
  map.out = {scale.as<float>(), check.flags(), scale_rounding(spec)};
  run_map(map, blocks.count());
  check.numbers(scale, blocks);
  return scale;
}
// Params of a scheme that has scales only.
template <typename Map>
QuantParams scale_params(const QuantSpec& spec, const Blocks& blocks, float eps, const Map& map) {
  return params_with(blocks.scheme(), spec, make_scales(spec, blocks, eps, map));
}

}  // namespace bitgrad::detail
