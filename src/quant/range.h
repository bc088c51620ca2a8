// The schemes whose scales follow from the range of a block: affine, symmetric, symmetric_no_clip, absmax,
// minmax_offset. fit computes the minimum and maximum of each block and then shares the code of fit_range.
#pragma once

#include "kernels/map/scales.h"
#include "quant/checks.h"

namespace bitgrad::detail {

class RangeQuantizer : public BuiltinQuantizer {
 public:
  void check(const QuantSpec& spec, bool weight) const override;
  CodeRange code_range(const QuantSpec& spec) const override;
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const final;
  std::optional<kernels::RowFit> row_fit(const QuantSpec& spec) const final;
  bool from_range() const final { return true; }
  // A block without elements has low = +Inf > high = -Inf, as reductions return: s = eps, zero point or offset 0.
  QuantParams fit_range(const QuantSpec& spec, const Tensor& low, const Tensor& high) const final;

 protected:
  enum class Shift : uint8_t { kNone, kZero, kOffset };

 private:
  virtual float default_eps() const;
  // What the params contain in addition to scales.
  virtual Shift shift() const { return Shift::kNone; }
  // The formula of `scales` for the row kernels; nullopt if they do not support it.
  virtual std::optional<kernels::RowFit::Rule> row_rule() const { return std::nullopt; }
  // Runs the scheme's map (kernels/map/scales.h) over the blocks.
  virtual void scales(const maps::q::RangeBlocks& blocks, int64_t count) const = 0;

  // On the CPU: throws errors for ranges and scales. what: the values that are too large.
  void check_scales(const maps::q::RangeBlocks& blocks, int64_t count, const std::string& what) const;
  QuantParams params(const QuantSpec& spec, const Tensor& low, const Tensor& high, const std::string& what) const;
};

}  // namespace bitgrad::detail
