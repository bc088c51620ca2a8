// standardized_binary, for bint1 weights (the balanced form of IR-Net: Qin et al. 2020, arXiv 1909.10788, eqs. 4 to 8):
// u = (x - mean) / sd per block, sd = max(sqrt(sum (x - mean)^2 / (n - 1)), eps), 1 where n = 1; code = x >= mean,
// which is u >= 0; s = 2^round(log2 max(mean abs u, eps)), mean abs u = (sum abs(x - mean) / n) / sd. The params'
// statistic is the mean. The fraction of a number with log2 halfway between integers is sqrt 2, which fp32 does not
// have, so there are no ties.
//
// Gradient: h = g * s * slope(u) by the rule (tanh by default), then through the standardisation, s a constant:
//   gx = ((h - mean h) - u * (sum h u / (n - 1))) / sd, each sum in the order of section 8.
// mean and sd are those of x. A sd that is eps or 1 by definition is a constant: the term with u is left out.
//
// Blocks lie in a row, so that rows can be taken apart.
#include <algorithm>
#include <bit>
#include <cmath>

#include "quant/blocks.h"
#include "quant/checks.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {
namespace {

// 2^round(log2 x), x > 0 and normal: the next power of two where the fraction is above sqrt 2 = 0x3FB504F3.
float round_pow2(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t up = (bits & 0x007FFFFFu) > 0x003504F3u ? 0x00800000u : 0u;
  return std::bit_cast<float>((bits & 0xFF800000u) + up);
}

struct Moments {
  std::vector<float> mean, sd;
  std::vector<bool> constant;  // sd does not follow from the numbers
};

Moments moments(const Blocks& blocks, float eps) {
  Moments m{blocks.statistic(ReduceRule::kSum), {}, {}};
  for (size_t j = 0; j < m.mean.size() && !blocks.empty(); ++j) m.mean[j] /= blocks.size(static_cast<int64_t>(j));
  for (size_t j = 0; j < m.mean.size(); ++j)
    finish_offset(blocks.scheme(), blocks.what(), static_cast<int64_t>(j), m.mean[j], "mean");
  m.sd = blocks.statistic(ReduceRule::kSumSquaredDiff, m.mean);
  for (size_t j = 0; j < m.sd.size(); ++j) {
    const float n = blocks.size(static_cast<int64_t>(j));
    const float sd = n > 1.0f ? std::sqrt(m.sd[j] / (n - 1.0f)) : 1.0f;
    finish_offset(blocks.scheme(), blocks.what(), static_cast<int64_t>(j), sd, "standard deviation");
    m.sd[j] = std::max(sd, eps);
    m.constant.push_back(!(n > 1.0f && sd > eps));
  }
  return m;
}

class StandardizedBinary final : public Quantizer {
 public:
  std::string_view name() const override { return "standardized_binary"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {});
    require(spec.dtype.kind() == DTypeKind::kSign, name(), "dtype ", spec.dtype, ": got kind ",
            kind_name(spec.dtype.kind()), ", expected kind sign, such as bint1.");
    const Granularity& g = spec.granularity;
    const bool in_row = g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0) ||
                        (g.kind == Granularity::kGroup && g.axis != 0);
    require(in_row, name(), "granularity: got ", g, ", expected channel(0), token or groups along a row.");
  }
  SteRule default_ste() const override { return SteRule::kTanh; }
  CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kAtLeast, -1, 1, false, true}; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const Moments m = moments(blocks, eps);
    const std::vector<float> sum = blocks.statistic(ReduceRule::kSumAbsDiff, m.mean);
    QuantParams params = scale_params(spec, blocks, round_pow2(eps), [&](size_t j) {
      return round_pow2(std::max(sum[j] / blocks.size(static_cast<int64_t>(j)) / m.sd[j], eps));
    });
    params.statistic = state_tensor(m.mean);
    return params;
  }
  bool own_backward(const QuantSpec&) const override { return true; }
  void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                     const Tensor& g_x, std::span<const Tensor> g_learned) const override;
};

void StandardizedBinary::leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x,
                                       const Tensor& g_value, const Tensor& g_x,
                                       std::span<const Tensor> g_learned) const {
  check_leaf(*this, spec, params, x, g_value, g_x, g_learned);
  if (x.numel() == 0) return;
  const Blocks blocks(name(), params.granularity, x);
  const Moments m = moments(blocks, spec.eps.value_or(kSmallestNormal));
  const SteRule rule = spec.ste.value_or(default_ste());
  const int64_t cols = x.cols(), per_row = blocks.count() / x.rows();
  const int64_t width = params.granularity.kind == Granularity::kGroup ? params.granularity.group : cols;
  const float *from = x.as<float>(), *g = g_value.as<float>(), *scale = params.scale->as<float>();
  float* to = g_x.as<float>();
  parallel_ranges(blocks.count(), std::max(int64_t{1}, 16384 / width), [&](int64_t begin, int64_t end) {
    const Workspace products(std::min(width, cols) * static_cast<int64_t>(sizeof(float)));
    float* hu = products.as<float>();
    for (int64_t block = begin; block < end; ++block) {
      const size_t j = static_cast<size_t>(block);
      const int64_t c = block % per_row * width, at = block / per_row * cols + c, n = std::min(width, cols - c);
      const auto u = [&](int64_t i) { return (from[at + i] - m.mean[j]) / m.sd[j]; };
      for (int64_t i = 0; i < n; ++i) {
        to[at + i] = g[at + i] * scale[block] * sign_slope(rule, spec.ste_t, u(i));
        hu[i] = to[at + i] * u(i);
      }
      const float count = static_cast<float>(n), mean = sum(to + at, n) / count;
      const float slope = m.constant[j] ? 0.0f : sum(hu, n) / (count - 1.0f);
      for (int64_t i = 0; i < n; ++i) to[at + i] = ((to[at + i] - mean) - u(i) * slope) / m.sd[j];
    }
  });
}

}  // namespace

std::unique_ptr<Quantizer> make_StandardizedBinary() { return std::make_unique<StandardizedBinary>(); }

}  // namespace bitgrad::detail
