// Integer graphs (nn/integer_graph.h) made by hand with random codes, and their values in int64 from the definitions of
// docs/numerics.md alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/key.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::test {

class IntegerNet {
 public:
  using Value = inference::Value;
  // Inputs have this scale and zero point.
  IntegerNet(const Shape& sample, OutputRounding rule, uint64_t seed, float scale = 0.02f, int32_t zero = -3)
      : graph_(Form{.sample = sample}), rule_(rule), draws_{seed, Purpose::kInit, 0, 0} {
    put({.layer = "input", .operation = inference::Quantize{.lo = -128, .hi = 127}, .inputs = {0}}, sample, scale,
        zero);
  }
  static constexpr Value kInput = 1;

  Value linear(Value x, int64_t o, DType weights) {
    const Shape& in = form(x).sample;
    std::vector<int64_t> dims = in.dims();
    dims.back() = o;
    return product(x, o, in.cols(), weights, std::nullopt, Shape(dims));
  }
  Value conv(Value x, int64_t o, const Conv2dOptions& c, DType weights) {
    const Shape& in = form(x).sample;
    const auto out = conv2d_output(in[0], in[1], c);
    return product(x, o, c.kernel[0] * c.kernel[1] * in[2] / c.groups, weights, c, Shape{out[0], out[1], o});
  }
  // Of the next products and sums: scale of the result in place of one that suits, zero point, clamp.
  IntegerNet& result(float scale, int32_t zero, int64_t lo = -128, int64_t hi = 127) {
    next_ = {scale, zero, lo, hi};
    return *this;
  }
  Value add(Value a, Value b) {
    const double s[] = {scale(a), scale(b)};
    const float sy = next_.scale > 0 ? next_.scale : static_cast<float>(1.3 * std::max(s[0], s[1]));
    inference::IntegerAdd op{.rule = rule_, .zero_in = {zero(a), zero(b)}};
    const double t = 2 * std::max(s[0], s[1]);
    op.in = {fixed_point(s[0] / t), fixed_point(s[1] / t)};
    op.out = fixed_point(t / (1048576.0 * static_cast<double>(sy)));
    const float ratio[] = {static_cast<float>(s[0]) / sy, static_cast<float>(s[1]) / sy};
    int e = 0;
    (void)std::frexp(std::max(ratio[0], ratio[1]), &e);
    op.shift = 20 - (e - 1);
    for (size_t i = 0; i < 2; ++i)
      op.factor[i] = static_cast<int32_t>(std::rint(std::ldexp(static_cast<double>(ratio[i]), op.shift)));
    return joined(op, {a, b}, sy);
  }
  Value multiply(Value a, Value b) {
    const float sy = static_cast<float>(50 * scale(a) * scale(b));
    inference::IntegerMultiply op{.rule = rule_, .zero_in = {zero(a), zero(b)}};
    op.multiplier = fixed_point(scale(a) * scale(b) / static_cast<double>(sy));
    op.factor = static_cast<float>(scale(a)) * static_cast<float>(scale(b)) / sy;
    return joined(op, {a, b}, sy);
  }
  Value avg_pool(Value x, const PoolOptions& o) {
    const Shape& in = form(x).sample;
    const auto out = pool_output("avg_pool", in[0], in[1], o);
    return same(x, inference::IntegerAvgPool{.options = o, .lo = -128, .hi = 127}, Shape{out[0], out[1], in[2]});
  }
  Value global_avg_pool(Value x) {
    return same(x, inference::IntegerAvgPool{.whole_image = true, .lo = -128, .hi = 127}, Shape{form(x).sample[2]});
  }
  Value max_pool(Value x, const PoolOptions& o) {
    const Shape& in = form(x).sample;
    const auto out = pool_output("max_pool", in[0], in[1], o);
    return same(x, inference::MaxPool{.options = o}, Shape{out[0], out[1], in[2]});
  }
  Value reshape(Value x, const Shape& sample) { return same(x, inference::Reshape{}, sample); }
  Value table(Value x, const std::string& function = "silu") {
    inference::Table op{.function = function};
    for (auto& c : op.codes) c = static_cast<int8_t>(drawn(-128, 127));
    return put({.layer = name("table"), .operation = op, .inputs = {x}}, form(x).sample, 0.05f, 7);
  }
  // Codes of another scale.
  Value rescaled(Value x, float s, int32_t z) {
    inference::Requantize op{.zero = z, .lo = -128, .hi = 127, .rule = rule_};
    op.multiplier = {fixed_point(scale(x) / static_cast<double>(s))};
    op.factor = {static_cast<float>(scale(x)) / s};
    op.zero_in = zero(x);
    return put({.layer = name("rescaled"), .operation = op, .inputs = {x}}, form(x).sample, s, z);
  }
  Value concat(const std::vector<Value>& parts) {
    std::vector<int64_t> dims = form(parts[0]).sample.dims();
    dims.back() = 0;
    for (const Value v : parts) dims.back() += form(v).features();
    return put({.layer = name("concat"), .operation = inference::Join{inference::JoinKind::kConcat}, .inputs = parts},
               Shape(dims), static_cast<float>(scale(parts[0])), zero(parts[0]));
  }
  // The graph with its last node.
  inference::Graph finish() {
    inference::Node last{.layer = "output", .operation = inference::Dequantize{}, .inputs = {last_}};
    last.form = form(last_);
    last.form.dtype = dtypes::fp32;
    inference::Graph out = graph_;
    out.add(std::move(last));
    return out;
  }
  const Form& form(Value v) const { return graph_[v].form; }
  double scale(Value v) const { return static_cast<double>(inference::code_scale(graph_[v]).scale); }
  int32_t zero(Value v) const { return inference::code_scale(graph_[v]).zero; }
  int64_t drawn(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(draws_.bits32(at_++) % static_cast<uint32_t>(hi - lo + 1));
  }

 private:
  struct Result {
    float scale = 0;
    int32_t zero = 4;
    int64_t lo = -128, hi = 127;
  };

  std::string name(const std::string& kind) const { return "layers." + kind + std::to_string(graph_.nodes().size()); }
  static std::shared_ptr<const QuantParams> params(const std::vector<float>& scales, int32_t zero) {
    auto q = std::make_shared<QuantParams>();
    q->scheme = "affine";
    q->scale = std::make_shared<Tensor>(Tensor::from(scales, Shape{std::ssize(scales)}));
    const Tensor z = Tensor::empty(Shape{std::ssize(scales)}, dtypes::int32);
    std::fill_n(z.as<int32_t>(), z.numel(), zero);
    if (zero != 0) q->zero = std::make_shared<Tensor>(z);
    return q;
  }
  Value put(inference::Node node, const Shape& sample, float scale, int32_t zero) {
    node.form.sample = sample;
    node.form.dtype = dtypes::int8;
    node.params = params({scale}, zero);
    next_ = {};
    return last_ = graph_.add(std::move(node));
  }
  template <typename Op>
  Value same(Value x, const Op& op, const Shape& sample) {
    return put({.layer = name("pool"), .operation = op, .inputs = {x}}, sample, static_cast<float>(scale(x)), zero(x));
  }
  template <typename Op>
  Value joined(Op op, std::vector<Value> inputs, float sy) {
    op.zero = next_.zero;
    op.lo = next_.lo;
    op.hi = next_.hi;
    const Shape sample = form(inputs[0]).sample;
    return put({.layer = name("join"), .operation = op, .inputs = std::move(inputs)}, sample, sy, next_.zero);
  }
  Value product(Value x, int64_t o, int64_t k, DType dtype, const std::optional<Conv2dOptions>& c, const Shape& out) {
    const int64_t qmax = dtype.info().qmax, qmin = std::max(dtype.info().qmin, -qmax);
    std::vector<double> codes(static_cast<size_t>(o * k));
    const bool sign = dtype.kind() == DTypeKind::kSign;
    for (double& each : codes) each = static_cast<double>(sign ? 2 * drawn(0, 1) - 1 : drawn(qmin, qmax));
    std::vector<float> sw(static_cast<size_t>(o));
    for (float& s : sw) s = 0.01f * (0.5f + static_cast<float>(drawn(0, 1000)) / 1000);
    const double suits = 0.01 * scale(x) * std::sqrt(static_cast<double>(k)) * static_cast<double>(qmax) * 0.7;
    const float sy = next_.scale > 0 ? next_.scale : static_cast<float>(suits);
    inference::Product op{.conv = c, .integer_out = true};
    Tensor w = Tensor::from_elements(Shape{o, k}, dtype, codes);
    auto q = std::make_shared<QuantParams>();
    q->scheme = "absmax";
    q->granularity = Granularity::channel(0);
    q->scale = std::make_shared<Tensor>(Tensor::from(sw, Shape{o}));
    op.weight = w.with_quant(q);
    op.bias = Tensor::empty(Shape{o}, dtypes::int32);
    const auto most = static_cast<int64_t>(static_cast<double>(qmax * 60) * std::sqrt(static_cast<double>(k)));
    for (int64_t j = 0; j < o; ++j) op.bias.as<int32_t>()[j] = static_cast<int32_t>(drawn(-most, most));
    inference::Requantize stage{.zero = next_.zero, .lo = next_.lo, .hi = next_.hi, .rule = rule_};
    for (const float s : sw) {
      stage.multiplier.push_back(fixed_point(scale(x) * static_cast<double>(s) / static_cast<double>(sy)));
      stage.factor.push_back(static_cast<float>(scale(x)) * s / sy);
    }
    const std::string layer = name(c ? "conv" : "linear");
    inference::Node sum{.layer = layer, .operation = std::move(op), .inputs = {x}};
    sum.form.sample = out;
    sum.form.dtype = dtypes::int32;
    const Value v = graph_.add(std::move(sum));
    return put({.layer = layer, .operation = std::move(stage), .inputs = {v}}, out, sy, next_.zero);
  }

  inference::Graph graph_;
  OutputRounding rule_;
  RandomStream draws_;
  uint64_t at_ = 0;
  Result next_;
  Value last_ = 1;
};

struct NamedGraph {
  std::string name;
  inference::Graph graph;
};

// Residual blocks of ResNet-8 (MLPerf Tiny) for images [size, size, 3], `width` channels first.
inline inference::Graph small_resnet(OutputRounding rule, DType weights, int64_t size = 8, int64_t width = 8) {
  IntegerNet net(Shape{size, size, 3}, rule, 1, 1.0f, -128);
  const auto conv = [&](inference::Value x, int64_t o, int64_t k, int64_t stride, int32_t zero) {
    Conv2dOptions c{.kernel = {k, k}, .stride = {stride, stride}};
    c.padding = same_padding(net.form(x).sample[0], net.form(x).sample[1], c);
    net.result(0, zero);
    return net.conv(x, o, c, weights);
  };
  inference::Value x = conv(IntegerNet::kInput, width, 3, 1, -128);
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t o = width << i, stride = i == 0 ? 1 : 2;
    const inference::Value y = conv(conv(x, o, 3, stride, -128), o, 3, 1, 5);
    const inference::Value shortcut = i == 0 ? x : conv(x, o, 1, stride, -9);
    net.result(0, -128);
    x = net.add(shortcut, y);
  }
  net.linear(net.global_avg_pool(x), 10, weights);
  return net.finish();
}

// DS-CNN (MLPerf Tiny) for 49 frames of 10 numbers, `width` channels.
inline inference::Graph ds_cnn(OutputRounding rule, int64_t width = 64) {
  IntegerNet net(Shape{49, 10, 1}, rule, 8);
  const auto conv = [&](inference::Value x, Conv2dOptions c) {
    c.padding = same_padding(net.form(x).sample[0], net.form(x).sample[1], c);
    net.result(0, -128);
    return net.conv(x, width, c, dtypes::int8);
  };
  inference::Value x = conv(IntegerNet::kInput, {.kernel = {10, 4}, .stride = {2, 2}});
  for (int i = 0; i < 4; ++i) x = conv(conv(x, {.kernel = {3, 3}, .groups = width}), {.kernel = {1, 1}});
  net.linear(net.global_avg_pool(x), 12, dtypes::int8);
  return net.finish();
}

// Everything that integer graphs have, in odd sizes.
inline inference::Graph odd_network(OutputRounding rule, DType weights) {
  IntegerNet net(Shape{7, 9, 5}, rule, 2);
  const inference::Value a = net.conv(IntegerNet::kInput, 7, {.kernel = {3, 2}, .padding = {1, 0, 1, 1}}, weights);
  const inference::Value b =
      net.conv(a, 14, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}, .groups = 7}, dtypes::int8);  // two each
  const inference::Value c = net.max_pool(b, {{3, 3}, {2, 2}, {1, 0, 1, 1}});
  const inference::Value d = net.table(c);
  const inference::Value e =
      net.conv(d, 6, {.kernel = {2, 2}, .dilation = {2, 1}, .padding = {1, 1, 1, 0}, .groups = 2}, weights);
  const inference::Value f = net.rescaled(e, 0.03f, 11);
  const inference::Value g = net.avg_pool(f, {{2, 2}, {1, 1}, {0, 0, 1, 1}});
  net.result(0.05f, -20, -20, 100);  // relu6
  const inference::Value h = net.conv(g, 6, {.kernel = {1, 1}}, weights);
  const inference::Value m = net.multiply(h, g);
  const inference::Value n = net.concat({net.rescaled(m, 0.04f, 3), net.rescaled(g, 0.04f, 3)});
  net.linear(net.reshape(n, Shape{net.form(n).sample.numel()}), 9, weights);
  return net.finish();
}

// Products of rows, sums of a value with itself and with the input.
inline inference::Graph dense_network(OutputRounding rule, DType weights) {
  IntegerNet net(Shape{40}, rule, 3);
  const inference::Value a = net.linear(IntegerNet::kInput, 40, weights);
  net.result(0, -128);
  const inference::Value b = net.linear(net.add(a, IntegerNet::kInput), 33, weights);
  net.add(net.linear(net.add(b, b), 33, weights), b);
  return net.finish();
}

// Pools whose windows read what is behind them, and a sum with the input of its own convolution: no result may take the
// place of their operands.
inline inference::Graph overlapping_network(OutputRounding rule, DType weights) {
  IntegerNet net(Shape{6, 6, 4}, rule, 4);
  const inference::Value a = net.conv(IntegerNet::kInput, 4, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}, weights);
  const inference::Value b = net.max_pool(a, {{3, 3}, {1, 1}, {1, 1, 1, 1}});
  const inference::Value c = net.add(net.conv(b, 4, {.kernel = {1, 1}}, weights), b);
  net.conv(net.avg_pool(c, {{3, 3}, {1, 1}, {1, 1, 1, 1}}), 4, {.kernel = {1, 1}}, weights);
  return net.finish();
}

// Convolutions of each channel by itself: of 8 and 12 channels four at once, of 6 one by one; strides, dilation, pixels
// outside on each side, a window of one pixel and one larger than the image.
inline inference::Graph depthwise_network(OutputRounding rule, DType weights) {
  IntegerNet net(Shape{11, 6, 8}, rule, 6);
  const auto each = [&](inference::Value x, Conv2dOptions c) {
    c.groups = net.form(x).sample[2];
    return net.conv(x, c.groups, c, weights);
  };
  const inference::Value a = each(IntegerNet::kInput, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}});
  net.result(0, -128);
  const inference::Value b = net.conv(a, 12, {.kernel = {1, 1}}, weights);
  const inference::Value c = each(b, {.kernel = {5, 2}, .stride = {2, 1}, .padding = {0, 1, 2, 0}});
  const inference::Value d = each(c, {.kernel = {3, 3}, .dilation = {2, 3}, .padding = {2, 3, 2, 3}});
  const inference::Value e = net.conv(each(d, {.kernel = {1, 1}, .stride = {1, 2}}), 6, {.kernel = {1, 1}}, weights);
  net.linear(net.global_avg_pool(each(e, {.kernel = {5, 7}, .padding = {2, 3, 2, 3}})), 7, weights);
  return net.finish();
}

inline std::vector<NamedGraph> integer_nets(OutputRounding rule) {
  std::vector<NamedGraph> out;
  for (const DType d : {dtypes::int8, dtypes::int4, dtypes::ternary, dtypes::bint1}) {
    const std::string name = concat(enum_name(rule), ", ", d);
    out.push_back({"resnet, " + name, small_resnet(rule, d)});
    out.push_back({"odd, " + name, odd_network(rule, d)});
    out.push_back({"dense, " + name, dense_network(rule, d)});
    out.push_back({"overlapping, " + name, overlapping_network(rule, d)});
    out.push_back({"depthwise, " + name, depthwise_network(rule, d)});
  }
  return out;
}

}  // namespace bitgrad::test
