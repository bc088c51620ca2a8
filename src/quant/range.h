// The schemes whose scales follow from the range of a block: affine, symmetric, symmetric_no_clip, absmax,
// minmax_offset. fit and fit_range are one path: fit gives the least and the largest number of each block.
#pragma once

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

class RangeQuantizer : public Quantizer {
 public:
  void check(const QuantSpec& spec, bool weight) const override;
  CodeRange code_range(const QuantSpec& spec) const override;
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const final;
  bool from_range() const final { return true; }
  // A block without elements has low > high, as the reductions give it (+Inf, -Inf): s = eps, zero or offset 0.
  QuantParams fit_range(const QuantSpec& spec, std::span<const float> low, std::span<const float> high) const final;

 protected:
  enum class Shift : uint8_t { kNone, kZero, kOffset };

 private:
  virtual float default_eps() const;
  // s before the modifier pow2, eps applied. low, high: least and largest number of a block that has one.
  virtual float scale(const CodeLimits& limits, float low, float high, float eps) const = 0;
  // What the params hold beside scales, and that number for one block by its final scale.
  virtual Shift shift() const { return Shift::kNone; }
  virtual float shift_of(const CodeLimits&, float /*low*/, float /*scale*/) const { return 0.0f; }

  QuantParams params(const QuantSpec& spec, std::span<const float> low, std::span<const float> high,
                     const std::string& what) const;
};

}  // namespace bitgrad::detail
