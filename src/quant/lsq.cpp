// lsq: s learned; code = clamp(rint(x / s), qmin, qmax). Learned Step Size Quantization: Esser et al. 2020, arXiv
// 1902.08153, eqs. 1 to 5. First value s = max(2 mean abs x / sqrt Qp, 2^-20), Qp = qmax; s is kept at or above 2^-20.
//   u = (x - m) / s before rounding; inside: qmin < u < qmax, strict, the same for all gradients.
//   gx = g inside, else 0 (rule clip).
//   ds = sum of g * (rint u - u) inside, g * qmin where u <= qmin, g * qmax where u >= qmax, divided once by
//        sqrt(n * Qp) (learned_divisor).
// lsq_plus: the real offset m is learned too; code = clamp(rint((x - m) / s)). LSQ+: Bhalgat et al. 2020, arXiv
// 2004.09576, eqs. 3 to 6: dm = sum of g outside, with the same divisor and the same definition of inside. First m: 0,
// or min(0, min x) if codes start at 0, so that negative values have codes. There, where s is at its floor (a block of
// zeros), m is lower by floor(qmax / 2) s (half a step of int1): no value would be inside, and nothing learned.
#include <cmath>

#include "quant/blocks.h"
#include "quant/learned.h"
#include "quant/map/scales.h"

namespace bitgrad::detail {
namespace {

class Lsq : public LearnedQuantizer {
 public:
  std::string_view name() const override { return "lsq"; }
  void check(const QuantSpec& spec, bool weight) const override {
    check_learned(spec, {.div = true});
    require_integer(name(), spec.dtype);
    require(spec.dtype.info().qmax > 0, name(), "dtype ", spec.dtype, ": its largest code is ", spec.dtype.info().qmax,
            ", expected a positive one.");
    refuse_int1_weight(name(), spec.dtype, weight && !with_offset());
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    const DTypeInfo& info = spec.dtype.info();
    return {with_offset() ? CodeRule::kOffset : CodeRule::kDivide, info.qmin, info.qmax};
  }
  std::vector<LearnedPart> learned(const QuantSpec&) const override {
    if (with_offset()) return {{"step", kLearnedFloor}, {"offset", std::nullopt}};
    return {{"step", kLearnedFloor}};
  }
  float learned_divisor(const QuantSpec& spec, int64_t n) const override {
    return std::sqrt(static_cast<float>(n) * static_cast<float>(spec.dtype.info().qmax));
  }
  std::vector<Tensor> first_learned(const QuantSpec& spec, const Tensor& x) const override;
  std::optional<StepFit> step_fit(const QuantSpec& spec) const override {
    const DTypeInfo& info = spec.dtype.info();
    return StepFit{.factor = 2.0f / std::sqrt(static_cast<float>(info.qmax)), .low = info.qmin == 0};
  }
  QuantParams params_of(const QuantSpec& spec, std::span<const Tensor> learned) const override;
  void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                     const Tensor& g_x, std::span<const Tensor> g_learned) const override;

 private:
  virtual bool with_offset() const { return false; }
};

std::vector<Tensor> Lsq::first_learned(const QuantSpec& spec, const Tensor& x) const {
  const Blocks blocks(name(), spec.granularity, x);
  const DTypeInfo& info = spec.dtype.info();
  std::vector<Tensor> out{blocks.means(
      kernels::ReduceRule::kSumAbs,
      {.times = 2.0f, .divisor = std::sqrt(static_cast<float>(info.qmax)), .floor = kLearnedFloor, .name = "step"})};
  if (!with_offset()) return out;
  if (info.qmin != 0) {
    out.push_back(filled(blocks.count(), 0.0f));
    return out;
  }
  const Tensor low = blocks.statistic(kernels::ReduceRule::kMin);
  const Tensor offset = Tensor::empty({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
  run_map(maps::FirstOffsets{low.as<float>(), out[0].as<float>(), kLearnedFloor, middle_code(info), offset.as<float>()},
          blocks.count());
  out.push_back(offset);
  return out;
}

QuantParams Lsq::params_of(const QuantSpec& spec, std::span<const Tensor> learned) const {
  require_parts(spec, learned);
  const Tensor scale = at_least_floor(learned[0]);
  round_scales(spec, scale);
  QuantParams params = params_with(name(), spec, scale);
  if (!with_offset()) return params;
  const Tensor offset = learned[1].clone(MemoryKind::kQuantState);
  round_offsets(spec, offset);
  params.offset = shared(offset);
  return params;
}

void Lsq::leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                        const Tensor& g_x, std::span<const Tensor> g_learned) const {
  check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
  if (x.numel() == 0) return;
  const BlockMap blocks(params, x);
  maps::q::LearnedPiece piece{{x.cols(), blocks.map()}, nullptr, x.as<float>(), g_value.as<float>(), nullptr};
  const float qmin = static_cast<float>(spec.dtype.info().qmin), qmax = static_cast<float>(spec.dtype.info().qmax);
  if (!g_learned.empty()) {  // computed first, because g_x may alias g_value
    add_sums(params, x, maps::LsqStepTerms{piece, qmin, qmax}, g_learned[0]);
    if (with_offset()) add_sums(params, x, maps::LsqOffsetTerms{piece, qmin, qmax}, g_learned[1]);
  }
  if (!g_x.defined()) return;
  if (ste_rule(spec) != SteRule::kClip) return Quantizer::leaf_backward(spec, params, x, g_value, g_x);
  piece.out = g_x.as<float>();
  run_elements(maps::LsqGradient{piece, qmin, qmax}, piece.elements, x.rows());
}

class LsqPlus final : public Lsq {
 public:
  std::string_view name() const override { return "lsq_plus"; }

 private:
  bool with_offset() const override { return true; }
};

}  // namespace

std::unique_ptr<Quantizer> make_Lsq() { return std::make_unique<Lsq>(); }
std::unique_ptr<Quantizer> make_LsqPlus() { return std::make_unique<LsqPlus>(); }

}  // namespace bitgrad::detail
