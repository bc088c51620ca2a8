// What a graph of integers computes, as plain loops over 64-bit integers: multipliers, rules and operations written
// anew.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "bitgrad/nn/integer_graph.h"
#include "support/catch.h"

namespace bitgrad::test {

using inference::Graph;
using inference::Value;

// Values of a node for one sample, row-major.
struct Image {
  Shape shape;  // of one sample, [h,w,c] or less
  std::vector<int64_t> codes;
};

inline int64_t floor_shift(__int128 x, int bits) { return static_cast<int64_t>(x >> bits); }

inline int64_t reference_rule(int64_t acc, FixedPoint f, OutputRounding rule) {
  const __int128 m = f.m;
  if (rule == OutputRounding::kSingle) return floor_shift(acc * m + (__int128{1} << (30 - f.e)), 31 - f.e);
  const __int128 p = (f.e > 0 ? acc << f.e : acc) * m;
  const int64_t h = floor_shift(p + (__int128{1} << 30), 31);
  if (f.e >= 0) return h;
  const int64_t half = int64_t{1} << (-f.e - 1), unit = 2 * half;
  const int64_t magnitude = (std::abs(h) + half) / unit;  // ties away from zero
  return h < 0 ? -magnitude : magnitude;
}

inline int64_t reference_float(int64_t acc, float m) {
  return static_cast<int64_t>(std::nearbyint(static_cast<float>(acc) * m));
}

// The multipliers anew, from the scales of the nodes.
inline FixedPoint multiplier(double d) {
  int e = 0;
  const double f = std::frexp(d, &e);
  auto m = static_cast<int64_t>(std::floor(f * 2147483648.0 + 0.5));
  if (m == int64_t{1} << 31) m >>= 1, ++e;
  return e < -31 ? FixedPoint{} : FixedPoint{static_cast<int32_t>(m), e};
}

struct Codes {
  double s = 1;
  int64_t z = 0;
};
inline Codes codes_of(const Graph& g, Value v) {
  const inference::CodeScale c = inference::code_scale(g[v]);
  return {static_cast<double>(c.scale), c.zero};
}

inline int64_t scaled(int64_t acc, double s_in, double s_out, OutputRounding rule, float factor) {
  return rule == OutputRounding::kFloat ? reference_float(acc, factor)
                                        : reference_rule(acc, multiplier(s_in / s_out), rule);
}

inline Image product(const Graph& g, const inference::Node& node, const inference::Product& op, const Image& x) {
  const Codes in = codes_of(g, node.inputs[0]);
  const std::vector<double> w = op.weight.elements(), b = op.bias.elements();
  Image y{node.form.sample, std::vector<int64_t>(static_cast<size_t>(node.form.sample.numel()))};
  const int64_t outputs = op.weight.rows();
  if (!op.conv) {
    const int64_t k = op.weight.cols();
    for (int64_t i = 0; i < std::ssize(y.codes); ++i) {
      const int64_t row = i / outputs, o = i % outputs;
      int64_t sum = static_cast<int64_t>(b[size_t(o)]);
      for (int64_t j = 0; j < k; ++j)
        sum += static_cast<int64_t>(w[size_t(o * k + j)]) * (x.codes[size_t(row * k + j)] - in.z);
      y.codes[size_t(i)] = sum;
    }
    return y;
  }
  const Conv2dOptions& c = *op.conv;
  const int64_t h = x.shape[0], width = x.shape[1], channels = x.shape[2], ow = y.shape[1];
  const int64_t of_group = channels / c.groups, outputs_of_group = outputs / c.groups;
  for (int64_t i = 0; i < std::ssize(y.codes); ++i) {
    const int64_t o = i % outputs, ox = i / outputs % ow, oy = i / outputs / ow;
    int64_t sum = static_cast<int64_t>(b[size_t(o)]), at = o * op.weight.cols();
    for (int64_t ky = 0; ky < c.kernel[0]; ++ky)
      for (int64_t kx = 0; kx < c.kernel[1]; ++kx)
        for (int64_t ch = 0; ch < of_group; ++ch, ++at) {
          const int64_t py = oy * c.stride[0] + ky * c.dilation[0] - c.padding[0];
          const int64_t px = ox * c.stride[1] + kx * c.dilation[1] - c.padding[1];
          if (py < 0 || py >= h || px < 0 || px >= width) continue;
          const int64_t channel = o / outputs_of_group * of_group + ch;
          sum += static_cast<int64_t>(w[size_t(at)]) * (x.codes[size_t((py * width + px) * channels + channel)] - in.z);
        }
    y.codes[size_t(i)] = sum;
  }
  return y;
}

// Of all windows: f(codes inside, in order of pixels).
template <typename F>
inline Image pooled(const inference::Node& node, PoolOptions o, bool whole, const Image& x, F&& f) {
  Image y{node.form.sample, {}};
  const int64_t h = x.shape[0], w = x.shape[1], c = x.shape[2];
  if (whole) o = {{h, w}, {h, w}, {0, 0, 0, 0}};
  const int64_t oh = whole ? 1 : y.shape[0], ow = whole ? 1 : y.shape[1];
  for (int64_t i = 0; i < oh * ow * c; ++i) {
    std::vector<int64_t> inside;
    for (int64_t ky = 0; ky < o.size[0]; ++ky)
      for (int64_t kx = 0; kx < o.size[1]; ++kx) {
        const int64_t py = i / c / ow * o.stride[0] + ky - o.padding[0],
                      px = i / c % ow * o.stride[1] + kx - o.padding[1];
        if (py >= 0 && py < h && px >= 0 && px < w) inside.push_back(x.codes[size_t((py * w + px) * c + i % c)]);
      }
    y.codes.push_back(f(inside));
  }
  return y;
}

inline int64_t mean(const std::vector<int64_t>& x) {
  int64_t sum = 0;
  for (const int64_t v : x) sum += v;
  const auto n = static_cast<int64_t>(x.size());
  return sum > 0 ? (sum + n / 2) / n : (sum - n / 2) / n;
}

template <typename Op>
inline int64_t bounded(const Op& op, int64_t r) {
  return std::clamp<int64_t>(r + op.zero, op.lo, op.hi);
}

inline Image requantized(const Graph& g, Value v, const inference::Requantize& op, const Image& x) {
  const inference::Node& in = g[g[v].inputs[0]];
  const Codes out = codes_of(g, v);
  Image y{g[v].form.sample, {}};
  const bool sums = in.form.dtype == dtypes::int32;
  const auto* const p = std::get_if<inference::Product>(&in.operation);
  const std::vector<double> s_w = sums ? p->weight.quant()->scale->elements() : std::vector<double>{1};
  const Codes x_codes = sums ? codes_of(g, in.inputs[0]) : codes_of(g, g[v].inputs[0]);
  for (size_t i = 0; i < x.codes.size(); ++i) {
    const double w = s_w[i % s_w.size()];
    const float factor = static_cast<float>(x_codes.s) * static_cast<float>(w) / static_cast<float>(out.s);
    y.codes.push_back(bounded(op, scaled(x.codes[i] - (sums ? 0 : x_codes.z), x_codes.s * w, out.s, op.rule, factor)));
  }
  return y;
}

inline int64_t added(const inference::IntegerAdd& op, const Codes& a, const Codes& b, const Codes& out, int64_t x0,
                     int64_t x1) {
  if (op.rule == OutputRounding::kFloat) {
    const float r0 = static_cast<float>(a.s) / static_cast<float>(out.s),
                r1 = static_cast<float>(b.s) / static_cast<float>(out.s);
    const int n = 20 - static_cast<int>(std::floor(std::log2(std::max(r0, r1))));
    const auto k0 = static_cast<int64_t>(std::nearbyint(std::ldexp(r0, n))),
               k1 = static_cast<int64_t>(std::nearbyint(std::ldexp(r1, n)));
    return floor_shift(k0 * (x0 - a.z) + k1 * (x1 - b.z) + (int64_t{1} << (n - 1)), n);
  }
  const double t = 2 * std::max(a.s, b.s);
  const int64_t sum = reference_rule((x0 - a.z) << 20, multiplier(a.s / t), op.rule) +
                      reference_rule((x1 - b.z) << 20, multiplier(b.s / t), op.rule);
  return reference_rule(sum, multiplier(t / (1048576.0 * out.s)), op.rule);
}

inline Image reference_node(const Graph& g, Value v, const std::vector<Image>& done) {
  const inference::Node& node = g[v];
  const auto in = [&](size_t i) -> const Image& { return done[size_t(node.inputs[i])]; };
  if (const auto* const p = std::get_if<inference::Product>(&node.operation)) return product(g, node, *p, in(0));
  if (const auto* const q = std::get_if<inference::Requantize>(&node.operation)) return requantized(g, v, *q, in(0));
  if (const auto* const pool = std::get_if<inference::MaxPool>(&node.operation))
    return pooled(node, pool->options, false, in(0),
                  [](const std::vector<int64_t>& x) { return *std::max_element(x.begin(), x.end()); });
  if (const auto* const pool = std::get_if<inference::IntegerAvgPool>(&node.operation))
    return pooled(node, pool->options, pool->whole_image, in(0),
                  [&](const std::vector<int64_t>& x) { return std::clamp(mean(x), pool->lo, pool->hi); });
  Image y{node.form.sample, {}};
  if (std::holds_alternative<inference::Reshape>(node.operation)) return {node.form.sample, in(0).codes};
  if (std::holds_alternative<inference::Join>(node.operation)) {
    const int64_t rows = node.form.sample.rows();
    for (int64_t r = 0; r < rows; ++r)
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const int64_t c = in(i).shape.cols();
        y.codes.insert(y.codes.end(), in(i).codes.begin() + r * c, in(i).codes.begin() + (r + 1) * c);
      }
    return y;
  }
  for (size_t i = 0; i < in(0).codes.size(); ++i) {
    const int64_t x = in(0).codes[i];
    if (const auto* const add = std::get_if<inference::IntegerAdd>(&node.operation)) {
      y.codes.push_back(bounded(*add, added(*add, codes_of(g, node.inputs[0]), codes_of(g, node.inputs[1]),
                                            codes_of(g, v), x, in(1).codes[i])));
    } else if (const auto* const times = std::get_if<inference::IntegerMultiply>(&node.operation)) {
      const Codes a = codes_of(g, node.inputs[0]), b = codes_of(g, node.inputs[1]), out = codes_of(g, v);
      const float factor = static_cast<float>(a.s) * static_cast<float>(b.s) / static_cast<float>(out.s);
      y.codes.push_back(
          bounded(*times, scaled((x - a.z) * (in(1).codes[i] - b.z), a.s * b.s, out.s, times->rule, factor)));
    } else {
      const auto& table = std::get<inference::Table>(node.operation);
      const double value = codes_of(g, node.inputs[0]).s * static_cast<double>(x - codes_of(g, node.inputs[0]).z);
      CHECK(table.function == "tanh");
      const Codes out = codes_of(g, v);
      const double exact = std::tanh(value) / out.s + static_cast<double>(out.z);
      const int64_t code = table.codes[size_t(x + 128)];
      CHECK(std::abs(static_cast<double>(code) - std::clamp(exact, -128.0, 127.0)) <= 0.501);
      y.codes.push_back(code);
    }
  }
  return y;
}

inline std::vector<int64_t> integers(const Tensor& t) {
  std::vector<int64_t> out;
  for (const double v : t.elements()) out.push_back(static_cast<int64_t>(v));
  return out;
}

// Every value of every node for each sample equals the reference; returns how many codes.
inline int64_t check_codes(const Graph& graph, const Tensor& x) {
  const inference::IntegerNetwork network(graph);
  std::vector<Tensor> values;
  const Tensor y = network.run(x, &values);
  const Tensor again = network.run(x);  // in pieces
  CHECK(y.elements() == again.elements());
  int64_t count = 0;
  const int64_t n = x.shape()[0];
  for (int64_t sample = 0; sample < n; ++sample) {
    std::vector<Image> done;
    for (Value v = 0; v < std::ssize(graph.nodes()) - 1; ++v) {
      const inference::Node& node = graph[v];
      const int64_t each = node.form.sample.numel();
      std::vector<int64_t> all = node.form.dtype == dtypes::fp32 ? std::vector<int64_t>(size_t(each * n))
                                                                 : integers(values[size_t(v)].without_quant());
      const std::vector<int64_t> own(all.begin() + sample * each, all.begin() + (sample + 1) * each);
      const bool given = node.form.dtype == dtypes::fp32 || std::holds_alternative<inference::Quantize>(node.operation);
      done.push_back(given ? Image{node.form.sample, own} : reference_node(graph, v, done));
      INFO("node " << v << " of " << node.layer << ", sample " << sample);
      REQUIRE(done.back().codes == own);
      count += each;
    }
  }
  return count;
}

}  // namespace bitgrad::test
