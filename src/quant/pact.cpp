// pact, for kind uint of b bits: the clip alpha is learned, s = alpha / (2^b - 1);
// code = clamp(rint(x * (1/s)), 0, 2^b - 1), which equals rint(clamp(x, 0, alpha) * (1/s)). The params' statistic is
// alpha. PACT: Choi et al. 2018, arXiv 1805.06085, eqs. 1 to 3: dalpha = sum of g where x >= alpha. alpha starts at
// first_clip and is kept at or above 2^-20. gx follows rule clip of docs/numerics.md section 3, which tests the code
// before the clamp.
#include <cmath>

#include "kernels/elementwise.h"
#include "quant/blocks.h"
#include "quant/learned.h"

namespace bitgrad::detail {
namespace {

class Pact final : public LearnedQuantizer {
 public:
  std::string_view name() const override { return "pact"; }
  void check(const QuantSpec& spec, bool weight) const override {
    check_learned(spec, {.div = true});
    require_uint(name(), spec.dtype);
    require(!weight, name(), "dtype of weights: got ", spec.dtype,
            ", where weights below 0 would become 0. Use scheme lsq or dorefa_weight.");
    require(std::isfinite(spec.first_clip) && spec.first_clip >= kLearnedFloor, name(), "first_clip: got ",
            spec.first_clip, ", expected at least 2^-20 = ", kLearnedFloor, '.');
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {quotient_rule(spec), 0, spec.dtype.info().qmax};
  }
  std::vector<LearnedPart> learned(const QuantSpec&) const override { return {{"clip", kLearnedFloor}}; }
  std::vector<Tensor> first_learned(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    return {filled(blocks.count(), spec.first_clip)};
  }
  std::optional<StepFit> step_fit(const QuantSpec& spec) const override {
    const float qmax = static_cast<float>(spec.dtype.info().qmax);
    return StepFit{.factor = 2.0f / std::sqrt(qmax), .steps = qmax, .constant = spec.first_clip};
  }
  QuantParams params_of(const QuantSpec& spec, std::span<const Tensor> learned) const override {
    require_parts(spec, learned);
    const Tensor clip = at_least_floor(learned[0]), scale = clip.clone(MemoryKind::kQuantState);
    kernels::divide(scale.numel(), scale.as<float>(), static_cast<float>(spec.dtype.info().qmax));
    round_scales(spec, scale);
    QuantParams params = params_with(name(), spec, scale);
    params.statistic = shared(clip);
    return params;
  }
  void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                     const Tensor& g_x, std::span<const Tensor> g_learned) const override {
    check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
    if (!g_learned.empty() && x.numel() > 0) {
      const BlockMap blocks(params, x);
      const maps::q::LearnedPiece piece{
          {x.cols(), blocks.map()}, blocks.statistic(), x.as<float>(), g_value.as<float>(), nullptr};
      add_sums(params, x, maps::PactTerms{piece}, g_learned[0]);
    }
    if (g_x.defined()) Quantizer::leaf_backward(spec, params, x, g_value, g_x);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Pact() { return std::make_unique<Pact>(); }

}  // namespace bitgrad::detail
