// binary, for bint1 = {-1, +1}: code = x >= 0 (so -0.0 is +1). Without alpha s = 1, not stored (BinaryNet: Courbariaux
// et al. 2016, arXiv 1602.02830); with alpha s = mean abs x per block (XNOR-Net: Rastegari et al. 2016, arXiv
// 1603.05279, eq. 6).
#include <algorithm>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class Binary final : public Quantizer {
 public:
  std::string_view name() const override { return "binary"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec);
    require(spec.dtype.kind() == DTypeKind::kSign, name(), "dtype ", spec.dtype, ": got kind ",
            kind_name(spec.dtype.kind()), ", expected kind sign, such as bint1.");
  }
  CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kSign, -1, 1}; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    QuantParams params;
    params.scheme = name();
    if (!spec.alpha) return params;
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const std::vector<float> sum = blocks.statistic(ReduceRule::kSumAbs);
    params.granularity = spec.granularity;
    params.scale = make_scales(spec, blocks, eps,
                               [&](size_t j) { return std::max(sum[j] / blocks.size(static_cast<int64_t>(j)), eps); });
    return params;
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Binary() { return std::make_unique<Binary>(); }

}  // namespace bitgrad::detail
