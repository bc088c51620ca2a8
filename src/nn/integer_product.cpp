#include "nn/integer_product.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bitgrad::inference::integer {
namespace {

std::vector<double> doubles(const std::vector<float>& x, double missing) {
  return x.empty() ? std::vector<double>{missing} : std::vector<double>(x.begin(), x.end());
}

double at(const std::vector<double>& x, size_t i) { return x.size() == 1 ? x[0] : x[i]; }

// The codes of a weight with one scale per output channel or tensor, and these scales.
struct Weight {
  std::vector<double> codes, scales;  // [o * k], [o]
  int64_t outputs = 0, k = 0;
};
Weight weight_of(const Node& node, const Tensor& w) {
  const DTypeKind kind = w.dtype().kind();
  const bool integers = kind == DTypeKind::kInt || kind == DTypeKind::kSign;
  if (!w.dtype().is_code() || !integers)
    refuse_integer(node, "has weights of ", w.dtype(), ", expected codes of int8 or fewer bits, such as recipe int8");
  const QuantParams* const params = w.quant().get();
  if (params != nullptr && (params->zero != nullptr || params->offset != nullptr))
    refuse_integer(node, "has weights with ", params->zero ? "zero points" : "real offsets",
                   ", expected a symmetric scheme, such as absmax");
  const Granularity g = params != nullptr ? params->granularity : Granularity{};
  if (g.kind != Granularity::kTensor && !g.per_row())
    refuse_integer(node, "has weights with scales per ", g, ", expected one per tensor or per channel(0)");
  Weight weight{w.elements(), {1.0}, w.rows(), w.cols()};
  if (params != nullptr && params->scale != nullptr) weight.scales = params->scale->elements();
  if (weight.scales.size() == 1) weight.scales.assign(static_cast<size_t>(weight.outputs), weight.scales[0]);
  return weight;
}

// What channel o of a folded product is.
struct Channel {
  double scale = 0;
  int32_t bias = 0;
};

// The scale doubles until the bias fits beside the sum of products; codes lose as many bits, rounded to nearest.
Channel folded_channel(const Node& node, size_t o, std::span<double> codes, double scale, double bias, double s_x) {
  constexpr double kLargestBias = 0x1p30, kMostBits = 400;
  const double unit = s_x * scale;
  if (!(std::isfinite(bias) && unit > 0 && std::isfinite(unit)))
    refuse_integer(node, "has a bias of ", bias, " and a scale of ", unit, " in channel ", o, ", expected finite ones");
  int bits = 0;
  while (std::abs(bias) > kLargestBias * std::ldexp(unit, bits) && bits < kMostBits) ++bits;
  if (bits > 0)
    for (double& code : codes) code = std::rint(std::ldexp(code, -bits));
  return {std::ldexp(scale, bits), static_cast<int32_t>(std::rint(bias / std::ldexp(unit, bits)))};
}

// |bias| + sum of |w| * 255 is below 2^31.
void check_sum(const Node& node, size_t o, std::span<const double> codes, int32_t bias) {
  constexpr double kWidest = 255;
  double most = std::abs(static_cast<double>(bias));
  for (const double code : codes) most += std::abs(code) * kWidest;
  if (most > std::numeric_limits<int32_t>::max())
    refuse_integer(node, "sums ", codes.size(), " products in int32: channel ", o, " could reach ", most,
                   ", expected less than 2^31");
}

// The multiplier from scale `from` to `to`.
FixedPoint multiplier_of(const Node& node, double from, double to) {
  constexpr double kMost = 0x1p30;
  const double d = from / to;
  if (!(d >= 0 && std::round(d) < kMost))
    refuse_integer(node, "has codes of scale ", from, " that become codes of scale ", to,
                   ", expected a ratio below 2^30");
  return fixed_point(d);
}

double positive(const Node& node, const char* what, double s) {
  if (!(std::isfinite(s) && s > 0)) refuse_integer(node, "has ", what, " ", s, ", expected a positive number");
  return s;
}

}  // namespace

bool ChannelLine::take(const Node& node) {
  if (const auto* const norm = std::get_if<Normalize>(&node.operation)) {
    const std::vector<double> mean = doubles(norm->mean, 0), inv = doubles(norm->inv, 1);
    const std::vector<double> gamma = doubles(norm->gamma, 1), beta = doubles(norm->beta, 0);
    std::vector<double> g, b;
    for (size_t i = 0; i < std::max({mean.size(), inv.size(), gamma.size(), beta.size()}); ++i) {
      g.push_back(at(gamma, i) * at(inv, i));
      b.push_back(at(beta, i) - at(mean, i) * g.back());
    }
    compose(g, b);
    return true;
  }
  if (const auto* const times = std::get_if<Times>(&node.operation)) {
    compose({static_cast<double>(times->factor)}, {0});
    return true;
  }
  if (const auto* const shift = std::get_if<Shift>(&node.operation)) {
    compose({1}, doubles(shift->shift, 0));
    return true;
  }
  return false;
}

// g_ * (g * x + b) + b_
void ChannelLine::compose(const std::vector<double>& g, const std::vector<double>& b) {
  const size_t count = std::max({g.size(), b.size(), g_.size(), b_.size()});
  std::vector<double> new_g, new_b;
  for (size_t i = 0; i < count; ++i) {
    new_g.push_back(at(g_, i) * at(g, i));
    new_b.push_back(at(g_, i) * at(b, i) + at(b_, i));
  }
  g_ = std::move(new_g);
  b_ = std::move(new_b);
}

FoldedProduct fold(const Node& node, const Product& op, const ChannelLine& line, const CodeScale& x, float s_y) {
  if (op.integer_out) refuse_integer(node, "has compute: integer_out, expected compute: integer");
  if (op.conv && op.conv->pad_value != 0) refuse_integer(node, "pads with ", op.conv->pad_value, ", expected 0");
  positive(node, "an input of scale", x.scale);
  positive(node, "a result of scale", s_y);
  Weight w = weight_of(node, op.weight);
  const std::vector<float> bias = op.bias.defined() ? op.bias.to_vector() : std::vector<float>();
  FoldedProduct folded;
  folded.product = op;
  std::vector<double> biases;
  const double least = static_cast<double>(op.weight.dtype().info().qmin);
  const bool sign = op.weight.dtype().kind() == DTypeKind::kSign;
  for (size_t o = 0; o < static_cast<size_t>(w.outputs); ++o) {
    const std::span<double> codes = std::span(w.codes).subspan(o * static_cast<size_t>(w.k), static_cast<size_t>(w.k));
    const double g = line.g(o), s = positive(node, "a weight scale of", w.scales[o]);
    if (g == 0 && sign) refuse_integer(node, "has a norm of factor 0 in channel ", o, ", and its signs have no code 0");
    for (double& code : codes) {
      if (g < 0 && !sign && code == least && code != -static_cast<double>(op.weight.dtype().info().qmax))
        refuse_integer(node, "has a norm of a negative factor behind code ", code, ", which has no negative in ",
                       op.weight.dtype(), ": expected scheme absmax");
      code = g == 0 ? 0 : g < 0 ? -code : code;
    }
    const double b = (bias.empty() ? 0.0 : static_cast<double>(bias[o])) * g + line.b(o);
    const float scale = g == 0 ? static_cast<float>(s) : static_cast<float>(s * std::abs(g));
    const Channel channel =
        folded_channel(node, o, codes, std::max(scale, std::numeric_limits<float>::min()), b, x.scale);
    check_sum(node, o, codes, channel.bias);
    folded.scales.push_back(static_cast<float>(channel.scale));
    biases.push_back(channel.bias);
  }
  QuantParams params;
  params.scheme = "absmax";
  params.granularity = Granularity::channel(0);
  params.scale =
      std::make_shared<const Tensor>(Tensor::from(folded.scales, {w.outputs}, dtypes::fp32, MemoryKind::kBuffer));
  folded.product.weight = Tensor::from_elements(op.weight.shape(), op.weight.dtype(), w.codes, MemoryKind::kBuffer)
                              .with_quant(std::make_shared<const QuantParams>(std::move(params)));
  folded.product.bias = Tensor::from_elements({w.outputs}, dtypes::int32, biases, MemoryKind::kBuffer);
  folded.product.integer_out = true;
  return folded;
}

std::shared_ptr<const QuantParams> sum_params(float s_x, const std::vector<float>& s_w) {
  std::vector<float> s;
  for (const float each : s_w) s.push_back(s_x * each);
  QuantParams params;
  params.scheme = "product";
  params.granularity = Granularity::channel(1);
  params.scale = std::make_shared<const Tensor>(
      Tensor::from(s, {static_cast<int64_t>(s.size())}, dtypes::fp32, MemoryKind::kBuffer));
  return std::make_shared<const QuantParams>(std::move(params));
}

Requantize requantize_op(const Node& node, float s_x, const std::vector<float>& s_w, float s_y, OutputRounding rule) {
  Requantize op;
  op.spec.dtype = dtypes::int8;
  op.spec.scheme = "affine";
  op.rule = rule;
  for (const float s : s_w) {
    if (rule == OutputRounding::kFloat)
      op.factor.push_back(std::min(s_x * s / s_y, std::numeric_limits<float>::max()));
    else
      op.multiplier.push_back(multiplier_of(node, static_cast<double>(s_x) * static_cast<double>(s), s_y));
  }
  return op;
}

// Of tensorflow's `add` (reference_ops, quantized), and of XNNPACK's qs8-vadd.
IntegerAdd add_op(const Node& node, const CodeScale& a, const CodeScale& b, float s_y, OutputRounding rule) {
  IntegerAdd op;
  op.rule = rule == OutputRounding::kRuy ? OutputRounding::kDouble : rule;
  op.zero_in = {a.zero, b.zero};
  const float s[] = {a.scale, b.scale};
  if (rule == OutputRounding::kFloat) {
    const float ratio[] = {s[0] / s_y, s[1] / s_y};
    int exponent = 0;
    std::frexp(std::max(ratio[0], ratio[1]), &exponent);
    op.shift = IntegerAdd::kLeft - (exponent - 1);
    constexpr int kMostShift = 60;
    if (op.shift < 1 || op.shift > kMostShift)
      refuse_integer(node, "adds codes of scales ", s[0], " and ", s[1], " to codes of scale ", s_y,
                     ", expected ratios of 2^-40 to 2^19");
    for (size_t i = 0; i < 2; ++i)
      op.factor[i] = static_cast<int32_t>(std::rint(std::ldexp(static_cast<double>(ratio[i]), op.shift)));
    return op;
  }
  const double twice = 2.0 * std::max<double>(s[0], s[1]);
  for (size_t i = 0; i < 2; ++i) op.in[i] = multiplier_of(node, s[i], twice);
  op.out = multiplier_of(node, twice, std::ldexp(static_cast<double>(s_y), IntegerAdd::kLeft));
  return op;
}

IntegerMultiply multiply_op(const Node& node, const CodeScale& a, const CodeScale& b, float s_y, OutputRounding rule) {
  IntegerMultiply op;
  op.rule = rule;
  op.zero_in = {a.zero, b.zero};
  if (rule == OutputRounding::kFloat)
    op.factor = std::min(a.scale * b.scale / s_y, std::numeric_limits<float>::max());
  else
    op.multiplier = multiplier_of(node, static_cast<double>(a.scale) * static_cast<double>(b.scale), s_y);
  return op;
}

}  // namespace bitgrad::inference::integer
