// symmetric: s = max(max(-lo, hi) / ((qmax - qmin) / 2), eps), lo = min(0, min x), hi = max(0, max x);
// code = clamp(rint(x * (1/s))). symmetric_no_clip: s = max(max(lo / qmin, hi / qmax), eps), so that no value is
// clipped. Both equal torchao 0.18, choose_qparams_affine with MappingType SYMMETRIC and SYMMETRIC_NO_CLIPPING_ERR, in
// fp32.
#include "quant/checks.h"
#include "quant/range.h"

namespace bitgrad::detail {
namespace {

class Symmetric final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "symmetric"; }

 private:
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kSymmetric; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::SymmetricScales{blocks}, count);
  }
};

class SymmetricNoClip final : public RangeQuantizer {
 public:
  std::string_view name() const override { return "symmetric_no_clip"; }
  void check(const QuantSpec& spec, bool weight) const override {
    RangeQuantizer::check(spec, weight);
    const DTypeInfo& info = spec.dtype.info();
    require(info.qmin < 0 && info.qmax > 0, name(), "dtype ", spec.dtype, ": got codes ", info.qmin, " to ", info.qmax,
            ", expected codes of both signs. Use scheme symmetric or affine.");
  }

 private:
  std::optional<kernels::RowFit::Rule> row_rule() const override { return kernels::RowFit::kSymmetricNoClip; }
  void scales(const maps::q::RangeBlocks& blocks, int64_t count) const override {
    run_map(maps::SymmetricNoClipScales{blocks}, count);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Symmetric() { return std::make_unique<Symmetric>(); }
std::unique_ptr<Quantizer> make_SymmetricNoClip() { return std::make_unique<SymmetricNoClip>(); }

}  // namespace bitgrad::detail
