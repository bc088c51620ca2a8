// The schemes whose scales follow from the range of a block: affine, symmetric, symmetric_no_clip, absmax,
// minmax_offset. fit and fit_range are one path: fit gives the least and the largest number of each block.
#pragma once

#include "kernels/map/ranges.h"
#include "quant/checks.h"

namespace bitgrad::detail {

class RangeQuantizer : public BuiltinQuantizer {
 public:
  void check(const QuantSpec& spec, bool weight) const override;
  CodeRange code_range(const QuantSpec& spec) const override;
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const final;
  std::optional<kernels::RowFit> row_fit(const QuantSpec& spec) const final;
  bool from_range() const final { return true; }
  // A block without elements has low > high, as the reductions give it (+Inf, -Inf): s = eps, zero or offset 0.
  QuantParams fit_range(const QuantSpec& spec, const Tensor& low, const Tensor& high) const final;

 protected:
  enum class Shift : uint8_t { kNone, kZero, kOffset };

 private:
  virtual float default_eps() const;
  // What the params hold beside scales.
  virtual Shift shift() const { return Shift::kNone; }
  // The formula of `scales` for one row; none: there is no such kernel.
  virtual std::optional<kernels::RowFit::Rule> row_rule() const { return std::nullopt; }
  // Runs the scheme's map (kernels/map/ranges.h) over the blocks.
  virtual void scales(const maps::q::RangeBlocks& blocks, int64_t count) const = 0;

  // On the CPU: errors of ranges and scales. what: whose numbers are too large.
  void check_scales(const maps::q::RangeBlocks& blocks, int64_t count, const std::string& what) const;
  QuantParams params(const QuantSpec& spec, const Tensor& low, const Tensor& high, const std::string& what) const;
};

}  // namespace bitgrad::detail
