// A run of all products of a convolution, and what is wrong with them by ops/conv_numbers.h.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ops/conv_numbers.h"

namespace bitgrad::test {

inline LinearRun run_conv(const ConvCase& c, DType grad = dtypes::fp32) {
  AccumulateSink sx, sw, sb;
  Tape tape;
  const Var bias = c.bias.defined() ? tape.leaf(c.bias, &sb, c.bias.dtype()) : Var();
  const Var y = conv2d(tape.leaf(c.x, &sx, grad), tape.leaf(c.w, &sw, grad), bias, c.g.options, c.modes);
  tape.backward({y}, {c.gy});
  return {y.value(), sx.grad(), sw.grad(), sb.grad()};
}

// "" when these are the numbers, else the first that is not.
inline std::string first_difference(const char* name, const Tensor& got, const std::vector<double>& expected) {
  const std::vector<double> g = got.elements();
  if (g.size() != expected.size()) return concat(name, ' ', got, " instead of ", expected.size(), " elements");
  for (size_t i = 0; i < g.size(); ++i)
    if (!(g[i] == expected[i])) return concat(name, '[', i, "]: got ", g[i], ", expected ", expected[i]);
  return "";
}
// Order `digits` of mode fast is off by a share of the largest float of its row, not of each: 2^-24 in three digits,
// 2^-16 in the two of bf16. Bounds there are those of k products of the largest numbers.
inline void loosen(Product& sums, const std::vector<double>& a, const std::vector<double>& b, int64_t k, bool bf16) {
  if (bits_mode() == BitsMode::kStrict) return;
  const auto largest = [](const std::vector<double>& v) {
    double most = 0;
    for (const double x : v) most = std::max(most, std::fabs(x));
    return most;
  };
  const double bound = static_cast<double>(k) * largest(a) * largest(b) * (bf16 ? 256 : 1);
  for (double& m : sums.magnitude) m += bound;
}
inline std::string worst_difference(const char* name, const Tensor& got, const Product& expected, int64_t k) {
  if (got.numel() != std::ssize(expected.value)) return concat(name, ' ', got);
  const double error = worst(got, expected, k);
  return error <= 1 ? "" : concat(name, " is off by ", error, " bounds");
}

inline std::string describe(const ConvCase& c) {
  const auto scales = [](const Tensor& t) {
    std::ostringstream s;
    s << t;
    if (t.quant())
      s << " per " << t.quant()->granularity << (t.quant()->zero ? " with zero points" : "")
        << (t.quant()->offset ? " with offsets" : "");
    return s.str();
  };
  return concat(c.g.text(), "; x ", scales(c.x), "; w ", scales(c.w), c.bias.defined() ? "; bias" : "", "; gx ",
                enum_name(c.modes.gx), ", gw ", enum_name(c.modes.gw), c.modes.sr ? ", stochastic" : "");
}

// What is wrong with y, gx, gw and gbias, "" if nothing.
inline std::string wrong(const ConvCase& c, const LinearRun& run) {
  const int64_t k = c.g.k(), windows = c.g.pixels();
  const auto failed = [&](const std::string& text) { return concat(describe(c), ": ", text); };
  if (!(run.y.shape() == c.g.y_shape())) return failed(concat("y is ", run.y));
  if (!(run.gx.shape() == c.g.x_shape() && run.gw.shape() == c.g.w_shape())) return failed("shapes of gradients");
  std::string text;
  if (integer_conv(c.g, c.x, c.w)) {
    text = first_difference("y", run.y, exact_conv(c));
  } else {
    const std::vector<double> x = c.x.values(), w = c.w.values(), pads = pad_values(c);
    Product y{conv_forward(c.g, x, w, pads), conv_forward(c.g, magnitudes(c.x), magnitudes(c.w), pad_values(c, true))};
    for (int64_t i = 0; i < std::ssize(y.value) && c.bias.defined(); ++i) {
      const double b = double{c.bias.as<float>()[i % c.g.o]};
      y.value[static_cast<size_t>(i)] += b;
      y.magnitude[static_cast<size_t>(i)] += std::fabs(b);
    }
    loosen(y, x, w, k, c.x.dtype() == dtypes::bf16);
    text = worst_difference("y", run.y, y, k);
  }
  if (!text.empty()) return failed(text);
  if (c.modes.gx == ProductMode::kInt8) {
    text = first_difference("gx", run.gx, int8_gx(c));
  } else {
    Product gx = float_gx(c);
    loosen(gx, c.gy.elements(), c.w.values(), c.g.taps() * c.g.out_group(), c.modes.gx == ProductMode::kBf16);
    text = worst_difference("gx", run.gx, gx, c.g.taps() * c.g.out_group());
  }
  if (!text.empty()) return failed(text);
  if (c.modes.gw == ProductMode::kInt8) {
    text = first_difference("gw", run.gw, int8_gw(c));
  } else {
    Product gw = float_gw(c);
    loosen(gw, c.gy.elements(), c.x.values(), windows, c.modes.gw == ProductMode::kBf16);
    text = worst_difference("gw", run.gw, gw, windows);
  }
  if (!text.empty()) return failed(text);
  if (!c.bias.defined()) return "";
  Product gb{std::vector<double>(static_cast<size_t>(c.g.o)), {}};
  gb.magnitude = gb.value;
  const std::vector<double> gy = c.gy.elements();
  for (size_t i = 0; i < gy.size(); ++i) {
    gb.value[i % static_cast<size_t>(c.g.o)] += gy[i];
    gb.magnitude[i % static_cast<size_t>(c.g.o)] += std::fabs(gy[i]);
  }
  text = worst_difference("gbias", run.gb, gb, windows);
  return text.empty() ? "" : failed(text);
}

}  // namespace bitgrad::test
