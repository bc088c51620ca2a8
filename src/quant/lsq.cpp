// lsq: s learned; code = clamp(rint(x / s), qmin, qmax). Learned Step Size Quantization: Esser et al. 2020, arXiv
// 1902.08153, eqs. 1 to 5. First value s = max(2 mean abs x / sqrt Qp, 2^-20), Qp = qmax; s is kept at or above 2^-20.
//   ds = sum of g * (rint u - u) inside, g * qmin where u <= qmin, g * qmax where u >= qmax; u = (x - m) / s before
//   rounding; inside: qmin < u < qmax. Divided by sqrt(n * Qp) once (learned_divisor).
// lsq_plus: real offset m learned too; code = clamp(rint((x - m) / s)). LSQ+: Bhalgat et al. 2020, arXiv 2004.09576,
// eqs. 3 to 6: dm = sum of g outside, the same divisor. First m: 0, and min(0, min x) where codes start at 0, so that
// negative numbers have codes.
#include <cmath>

#include "quant/blocks.h"
#include "quant/learned.h"

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
  QuantParams params_of(const QuantSpec& spec, std::span<const Tensor> learned) const override;
  void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                     const Tensor& g_x, std::span<const Tensor> g_learned) const override;

 private:
  virtual bool with_offset() const { return false; }
};

std::vector<Tensor> Lsq::first_learned(const QuantSpec& spec, const Tensor& x) const {
  const Blocks blocks(name(), spec.granularity, x);
  const DTypeInfo& info = spec.dtype.info();
  std::vector<float> step = blocks.mean_abs();
  for (size_t j = 0; j < step.size(); ++j) {
    const float s = 2.0f * step[j] / std::sqrt(static_cast<float>(info.qmax));
    step[j] = std::max(finish_offset(name(), blocks.what(), static_cast<int64_t>(j), s, "step"), kLearnedFloor);
  }
  std::vector<Tensor> out{learned_tensor(step)};
  if (!with_offset()) return out;
  std::vector<float> offset = blocks.statistic(ReduceRule::kMin);
  for (float& m : offset) m = info.qmin == 0 ? std::min(0.0f, m) : 0.0f;
  out.push_back(learned_tensor(offset));
  return out;
}

QuantParams Lsq::params_of(const QuantSpec& spec, std::span<const Tensor> learned) const {
  require_parts(spec, learned);
  std::vector<float> step(learned[0].as<float>(), learned[0].as<float>() + learned[0].numel());
  for (float& s : step) s = std::max(s, kLearnedFloor);
  QuantParams params;
  params.scheme = name();
  params.granularity = spec.granularity;
  params.scale = state_tensor(step);
  if (with_offset()) params.offset = state_tensor({learned[1].as<float>(), step.size()});
  return params;
}

void Lsq::leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                        const Tensor& g_x, std::span<const Tensor> g_learned) const {
  check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
  if (!g_learned.empty() && x.numel() > 0) {
    const BlockMap blocks(params, x);
    const float *from = x.as<float>(), *g = g_value.as<float>();
    const float *scale = blocks.scale(), *offset = blocks.offset();
    const float qmin = static_cast<float>(spec.dtype.info().qmin), qmax = static_cast<float>(spec.dtype.info().qmax);
    const auto number = [&](int64_t e, int64_t j) {
      return (offset == nullptr ? from[e] : from[e] - offset[j]) / scale[j];
    };
    add_sums(params, x, blocks.map(), g_learned[0], [&](int64_t e, int64_t j) {
      const float u = number(e, j);  // inside, the additions round it to an integer as rint does
      if (u <= qmin) return g[e] * qmin;
      return u >= qmax ? g[e] * qmax : g[e] * (((u + 0x1.8p23f) - 0x1.8p23f) - u);
    });
    if (with_offset())
      add_sums(params, x, blocks.map(), g_learned[1], [&](int64_t e, int64_t j) {
        const float u = number(e, j);
        return u > qmin && u < qmax ? 0.0f : g[e];
      });
  }
  if (g_x.defined()) Quantizer::leaf_backward(spec, params, x, g_value, g_x);
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
