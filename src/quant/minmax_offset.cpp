// minmax_offset: l = min x, h = max x (not extended to 0); s = max(h - l, eps) / (qmax - qmin), eps 1e-6;
// m = l - s * qmin; code = clamp(rint((x - l) / s), 0, qmax - qmin) + qmin. This is the 4-bit format of torchao's
// tinygemm (Int4 weight only), with codes shifted by qmin. Codes always follow from s and m alone, with
// l = m + s * qmin, so that a fresh fit and scales read from a file give the same codes. A tensor without elements has
// s = eps, m = 0.
#include "quant/checks.h"
#include "quant/map/scales.h"
#include "quant/range.h"

namespace bitgrad::detail {
namespace {

class MinmaxOffset final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "minmax_offset"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true, .div = true});
    require_integer(name(), spec.dtype);
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {CodeRule::kOffset, spec.dtype.info().qmin, spec.dtype.info().qmax, true};
  }

 private:
  float default_eps() const override { return 1e-6f; }
  Shift shift() const override { return Shift::kOffset; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::MinmaxOffsetScales{blocks}, count);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_MinmaxOffset() { return std::make_unique<MinmaxOffset>(); }

}  // namespace bitgrad::detail
