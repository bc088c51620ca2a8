// absmax (narrow): s = max(a / qmax, eps), a = max abs x; code = clamp(rint(x * (1/s)), -qmax, qmax).
#include <algorithm>

#include "quant/checks.h"
#include "quant/range.h"

namespace bitgrad::detail {
namespace {

class Absmax final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "absmax"; }
  void check(const QuantSpec& spec, bool weight) const override {
    RangeQuantizer::check(spec, weight);
    require(spec.dtype.info().qmax > 0, name(), "dtype ", spec.dtype, ": its largest code is ", spec.dtype.info().qmax,
            ", expected a positive one.");
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    const CodeLimits limits = code_limits(spec);
    return {quotient_rule(spec), std::max(limits.lo, -limits.hi), limits.hi};
  }

 private:
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kAbsmax; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::AbsmaxScales{blocks}, count);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Absmax() { return std::make_unique<Absmax>(); }

}  // namespace bitgrad::detail
