// affine: s = max((hi - lo) / (qmax - qmin), eps), lo = min(0, min x), hi = max(0, max x);
// z = clamp(qmin - rint(lo / s), qmin, qmax); code = clamp(rint(x * (1/s)) + z). Equals torchao 0.18,
// choose_qparams_affine with MappingType ASYMMETRIC, in fp32. A tensor without elements has s = eps, z = 0.
#include "quant/range.h"

namespace bitgrad::detail {
namespace {

class Affine final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "affine"; }

 private:
  Shift shift() const override { return Shift::kZero; }
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kAffine; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::AffineScales{blocks}, count);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Affine() { return std::make_unique<Affine>(); }

}  // namespace bitgrad::detail
