// Values of integer graphs in int64, from the definitions of docs/numerics.md section 4 ("The integer scheme") alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/integer_graph.h"

namespace bitgrad::test {

class IntegerReference {
 public:
  using Codes = std::vector<int64_t>;
  explicit IntegerReference(const inference::Graph& graph) : graph_(graph) {}
  // Codes of the value before the last node, of one sample of codes.
  Codes run(const Codes& x) {
    values_.assign(graph_.nodes().size(), {});
    values_[1] = x;
    for (inference::Value v = 2; v < graph_.output(); ++v) {
      node_ = &graph_[v];
      values_[static_cast<size_t>(v)] = std::visit([&](const auto& op) { return of(op); }, node_->operation);
    }
    return values_[static_cast<size_t>(graph_[graph_.output()].inputs[0])];
  }

 private:
  const Codes& in(size_t i) const { return values_[static_cast<size_t>(node_->inputs[i])]; }
  const Shape& shape(size_t i) const { return graph_[node_->inputs[i]].form.sample; }
  const Shape& own() const { return node_->form.sample; }

  // Truncating divisions, as gemmlowp has them.
  static int64_t scaled(int64_t x, FixedPoint f, OutputRounding rule) {
    if (rule == OutputRounding::kSingle) {
      const __int128 sum = static_cast<__int128>(x) * f.m + (static_cast<__int128>(1) << (30 - f.e));
      const __int128 unit = static_cast<__int128>(1) << (31 - f.e);
      return static_cast<int64_t>(sum >= 0 ? sum / unit : -((-sum + unit - 1) / unit));
    }
    const int64_t shifted = std::clamp<int64_t>(f.e > 0 ? x * (int64_t{1} << f.e) : x, INT32_MIN, INT32_MAX);
    const int64_t p = shifted * f.m, nudge = p >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30);
    const int64_t h = (p + nudge) / (int64_t{1} << 31);
    if (f.e >= 0) return h;
    const int64_t half = int64_t{1} << (-f.e - 1);
    if (rule == OutputRounding::kRuy) return static_cast<int64_t>(std::floor(std::ldexp(h + half, f.e)));
    return h >= 0 ? (h + half) / (2 * half) : -((-h + half) / (2 * half));
  }
  static int64_t rounded(int64_t x, float factor) {
    return static_cast<int64_t>(std::nearbyint(static_cast<float>(x) * factor));
  }
  template <typename Op>
  static int64_t clamped(const Op& op, int64_t r) {
    return std::clamp(r + op.zero, op.lo, op.hi);
  }
  template <typename T>
  static T feature(const std::vector<T>& x, size_t j) {
    return x.size() == 1 ? x[0] : x[j];
  }

  template <typename Op>
  Codes of(const Op&) {
    return {};
  }
  Codes of(const inference::Product& op) {
    const int64_t z = inference::code_scale(graph_[node_->inputs[0]]).zero, o = op.weight.rows(), k = op.weight.cols();
    std::vector<int64_t> row(static_cast<size_t>(k));
    Conv2dOptions c = op.conv.value_or(Conv2dOptions{});
    const int64_t h = op.conv ? shape(0)[0] : shape(0).rows(), w = op.conv ? shape(0)[1] : 1, ch = shape(0).cols();
    const int64_t oh = op.conv ? own()[0] : h, ow = op.conv ? own()[1] : 1, cg = ch / c.groups;
    Codes y(static_cast<size_t>(oh * ow * o));
    for (int64_t j = 0; j < o; ++j) {
      unpack_row(op.weight.dtype(), static_cast<const uint8_t*>(op.weight.data()) + j * op.weight.stride(), 0, k,
                 row.data());
      for (int64_t p = 0; p < oh * ow; ++p) {
        int64_t sum = op.bias.as<int32_t>()[j];
        for (int64_t i = 0; i < k; ++i) {
          const int64_t tap = i / cg, ky = tap / c.kernel[1], kx = tap % c.kernel[1];
          const int64_t yy = p / ow * c.stride[0] + ky * c.dilation[0] - c.padding[0];
          const int64_t xx = p % ow * c.stride[1] + kx * c.dilation[1] - c.padding[1];
          if (yy < 0 || yy >= h || xx < 0 || xx >= w) continue;
          const int64_t from = j / (o / c.groups) * cg + i % cg;
          sum += row[static_cast<size_t>(i)] * (in(0)[static_cast<size_t>((yy * w + xx) * ch + from)] - z);
        }
        y[static_cast<size_t>(p * o + j)] = sum;
      }
    }
    return y;
  }
  Codes of(const inference::Requantize& op) {
    Codes y = in(0);
    const auto n = static_cast<size_t>(own().cols());
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t x = y[i] - op.zero_in;
      y[i] = clamped(op, op.rule == OutputRounding::kFloat ? rounded(x, feature(op.factor, i % n))
                                                           : scaled(x, feature(op.multiplier, i % n), op.rule));
    }
    return y;
  }
  Codes of(const inference::IntegerAdd& op) {
    Codes y = in(0);
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t a = in(0)[i] - op.zero_in[0], b = in(1)[i] - op.zero_in[1];
      if (op.rule == OutputRounding::kFloat) {
        const double sum = static_cast<double>(a * op.factor[0] + b * op.factor[1]);
        y[i] = clamped(op, static_cast<int64_t>(std::floor(std::ldexp(sum, -op.shift) + 0.5)));
      } else {
        const int64_t sum = scaled(a * 1048576, op.in[0], op.rule) + scaled(b * 1048576, op.in[1], op.rule);
        y[i] = clamped(op, scaled(sum, op.out, op.rule));
      }
    }
    return y;
  }
  Codes of(const inference::IntegerMultiply& op) {
    Codes y = in(0);
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t x = (in(0)[i] - op.zero_in[0]) * (in(1)[i] - op.zero_in[1]);
      y[i] = clamped(op, op.rule == OutputRounding::kFloat ? rounded(x, op.factor) : scaled(x, op.multiplier, op.rule));
    }
    return y;
  }
  // f(codes of the window) for each pixel and channel.
  template <typename F>
  Codes windows(PoolOptions o, bool whole, const F& f) {
    const int64_t h = shape(0)[0], w = shape(0)[1], c = shape(0)[2];
    if (whole) o = {{h, w}, {1, 1}, {0, 0, 0, 0}};
    const int64_t oh = whole ? 1 : own()[0], ow = whole ? 1 : own()[1];
    Codes y;
    for (int64_t p = 0; p < oh * ow; ++p)
      for (int64_t j = 0; j < c; ++j) {
        Codes inside;
        for (int64_t t = 0; t < o.size[0] * o.size[1]; ++t) {
          const int64_t yy = p / ow * o.stride[0] - o.padding[0] + t / o.size[1];
          const int64_t xx = p % ow * o.stride[1] - o.padding[1] + t % o.size[1];
          if (yy >= 0 && yy < h && xx >= 0 && xx < w)
            inside.push_back(in(0)[static_cast<size_t>((yy * w + xx) * c + j)]);
        }
        y.push_back(f(inside));
      }
    return y;
  }
  Codes of(const inference::MaxPool& op) {
    return windows(op.options, false, [](const Codes& x) { return *std::max_element(x.begin(), x.end()); });
  }
  Codes of(const inference::IntegerAvgPool& op) {
    return windows(op.options, op.whole_image, [&](const Codes& x) {
      int64_t sum = 0;
      for (const int64_t each : x) sum += each;
      const auto n = std::ssize(x);
      // Half away from zero, by magnitude; for an even n.
      const int64_t mean = sum > 0 ? (sum + n / 2) / n : -((-sum + n / 2) / n);
      return std::clamp(mean, op.lo, op.hi);
    });
  }
  Codes of(const inference::Table& op) {
    Codes y = in(0);
    for (int64_t& each : y) each = op.codes[static_cast<size_t>(each + 128)];
    return y;
  }
  Codes of(const inference::Reshape&) { return in(0); }
  Codes of(const inference::Join&) {
    Codes y;
    for (int64_t p = 0; p < own().rows(); ++p)
      for (size_t i = 0; i < node_->inputs.size(); ++i) {
        const int64_t f = shape(i).cols();
        for (int64_t j = 0; j < f; ++j) y.push_back(in(i)[static_cast<size_t>(p * f + j)]);
      }
    return y;
  }

  const inference::Graph& graph_;
  const inference::Node* node_ = nullptr;
  std::vector<Codes> values_;
};

}  // namespace bitgrad::test
