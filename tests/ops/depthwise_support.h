// Depthwise convolutions that are drawn, their products, and direct loops for these.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/spatial.h"
#include "ops/linear_support.h"
#include "ops/product/depthwise.h"

namespace bitgrad::test {

struct DepthwiseCase {
  Tensor x, w, bias, gy;
  Conv2dOptions options;
  ProductModes modes;
  std::string text;
};
struct DepthwiseRun {
  Tensor y, gx, gw;
};

inline DepthwiseRun run_depthwise(const DepthwiseCase& c) {
  AccumulateSink sx, sw;
  Tape tape;
  const DType grad = c.x.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
  const Var y = conv2d(tape.leaf(c.x, &sx, grad), tape.leaf(c.w, &sw, grad), c.bias.defined() ? Var(c.bias) : Var(),
                       c.options, c.modes);
  tape.backward({y}, {c.gy});
  return {y.value(), sx.grad(), sw.grad()};
}

class DepthwiseDraws {
 public:
  explicit DepthwiseDraws(uint64_t seed) : stream_{seed, Purpose::kUser, site_id("depthwise_test"), 0} {}
  int64_t in(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(stream_.bits32(next_++) % static_cast<uint64_t>(high - low + 1));
  }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return values.begin()[in(0, static_cast<int64_t>(values.size()) - 1)];
  }
  uint64_t seed() { return static_cast<uint64_t>(in(1, 1 << 30)); }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

// Codes of the whole range; zero points are codes.
inline Tensor draw_codes(DepthwiseDraws& draws, const Shape& shape, DType dtype, const Granularity& granularity,
                         ZeroKind zero) {
  Tensor t = random_codes(shape, dtype, draws.seed(), granularity, zero == ZeroKind::kReal ? zero : ZeroKind::kNone);
  if (zero != ZeroKind::kInteger) return t;
  QuantParams params = *t.quant();
  const int64_t count = scale_count(granularity, shape.rows(), shape.cols());
  std::vector<double> zeros;
  for (int64_t i = 0; i < count; ++i)
    zeros.push_back(static_cast<double>(draws.in(dtype.info().qmin, dtype.info().qmax)));
  params.zero = std::make_shared<const Tensor>(Tensor::from_elements({count}, dtypes::int32, zeros));
  return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

struct DepthwiseShape {
  int64_t n, h, w, c, multiplier;
};

// Kernel, stride, dilation, padding; "" shapes where no window fits are drawn again.
inline DepthwiseShape draw_shape(DepthwiseDraws& draws, Conv2dOptions& o) {
  for (;;) {
    const DepthwiseShape s{draws.in(0, 9) == 0 ? 0 : draws.in(1, 3), draws.in(1, 13), draws.in(1, 13),
                           draws.of<int64_t>({2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 70, 96, 130}),
                           draws.of<int64_t>({1, 1, 1, 2, 3})};
    o.kernel = {draws.in(1, 5), draws.in(1, 5)};
    o.stride = {draws.in(1, 3), draws.in(1, 3)};
    o.dilation = {draws.in(1, 3), draws.in(1, 3)};
    for (int64_t& p : o.padding) p = draws.in(0, 1) == 0 ? 0 : draws.in(0, 4);
    o.groups = s.c;
    const int64_t room_y = s.h + o.padding[0] + o.padding[2] - (o.kernel[0] - 1) * o.dilation[0],
                  room_x = s.w + o.padding[1] + o.padding[3] - (o.kernel[1] - 1) * o.dilation[1];
    if (room_y >= 1 && room_x >= 1) return s;
  }
}

// Direct loops: call(m, p, t, y, x) for window m, tap t and pixel p of all images, -1 outside; ascending m, then t.
template <typename Call>
void each_tap(const DepthwiseShape& s, const Conv2dOptions& o, Call&& call) {
  const auto [oh, ow] = conv2d_output(s.h, s.w, o);
  for (int64_t m = 0; m < s.n * oh * ow; ++m) {
    const int64_t image = m / (oh * ow), oy = m / ow % oh, ox = m % ow;
    for (int64_t t = 0; t < o.kernel[0] * o.kernel[1]; ++t) {
      const int64_t y = oy * o.stride[0] + t / o.kernel[1] * o.dilation[0] - o.padding[0];
      const int64_t x = ox * o.stride[1] + t % o.kernel[1] * o.dilation[1] - o.padding[1];
      call(m, y < 0 || y >= s.h || x < 0 || x >= s.w ? -1 : (image * s.h + y) * s.w + x, t);
    }
  }
}

inline std::string depthwise_text(const DepthwiseCase& c) {
  std::ostringstream out;
  const auto scales = [&](const Tensor& t) {
    out << t;
    if (t.quant())
      out << " per " << t.quant()->granularity << (t.quant()->zero ? " zeros" : "")
          << (t.quant()->offset ? " offsets" : "");
    out << "; ";
  };
  scales(c.x);
  scales(c.w);
  const auto list = [&](const char* name, const auto& values) {
    out << name;
    for (const int64_t v : values) out << ' ' << v;
    out << "; ";
  };
  list("kernel", c.options.kernel);
  list("stride", c.options.stride);
  list("dilation", c.options.dilation);
  list("padding", c.options.padding);
  out << "pad value " << c.options.pad_value << (c.bias.defined() ? " bias" : "") << "; gx " << enum_name(c.modes.gx)
      << ", gw " << enum_name(c.modes.gw) << (c.modes.sr ? " stochastic" : "") << ", y " << c.modes.y;
  return out.str();
}

// Where bits differ first; "" nowhere. +0 and -0 are equal.
inline std::string unequal(const char* name, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return concat(name, ": ", a, " and ", b);
  const std::vector<double> p = a.elements(), q = b.elements();
  for (size_t i = 0; i < p.size(); ++i)
    if (!(p[i] == q[i])) return concat(name, '[', i, "]: ", p[i], " and ", q[i]);
  return "";
}

struct DrawnDepthwise {
  DepthwiseCase c;
  DepthwiseShape s;
};

// Numbers of an operand and the scale that gy takes over from it, where it is one for all or (rows) one a row.
struct GradientNumbers {
  std::vector<float> numbers, scale;  // scale: of rows; empty: none
};
inline GradientNumbers gradient_numbers(const Tensor& t, bool rows) {
  const ScaleMap map = t.scale_map();
  GradientNumbers out;
  const bool fold = map.scale != nullptr && map.zero == nullptr && map.offset == nullptr &&
                    (map.per_tensor() || (rows && map.per_row()));
  for (const double v : fold ? t.elements() : t.values()) out.numbers.push_back(static_cast<float>(v));
  for (int64_t r = 0; fold && r < t.rows(); ++r) out.scale.push_back(map.scale[map.index(r, 0)]);
  return out;
}
inline float of_gradient(double g, const std::vector<float>& scale, int64_t row, ProductMode mode) {
  float v = static_cast<float>(g);
  if (!scale.empty()) v = v * scale[static_cast<size_t>(row)];
  return mode == ProductMode::kBf16 ? bf16_to_float(bf16_from_float(v)) : v;
}

// The order of docs/numerics.md, "Depthwise convolutions", written as loops.
inline DepthwiseRun in_order(const DrawnDepthwise& d) {
  const DepthwiseCase& c = d.c;
  const int64_t taps = c.w.cols(), o = c.w.rows(), mult = d.s.multiplier, channels = d.s.c;
  const std::vector<double> xv = c.x.values(), wv = c.w.values(), gv = c.gy.elements();
  const auto pad = [&](int64_t i, bool bare) {
    const ScaleMap map = c.x.scale_map();
    return map.scale == nullptr || bare ? static_cast<float>(c.options.pad_value)
                                        : map.scale[map.index(0, i)] * static_cast<float>(c.options.pad_value);
  };
  std::vector<float> y(gv.size()), gx(xv.size()), part(wv.size()), gw(wv.size());
  const GradientNumbers w = gradient_numbers(c.w, true), x = gradient_numbers(c.x, false);
  struct Step {
    int64_t m, p, t;
  };
  std::vector<Step> steps;
  each_tap(d.s, c.options, [&](int64_t m, int64_t p, int64_t t) { steps.push_back({m, p, t}); });
  int64_t panel = 0;
  const auto end_panel = [&] {
    for (size_t i = 0; i < gw.size(); ++i) gw[i] = panel == 0 ? part[i] : gw[i] + part[i];
    std::fill(part.begin(), part.end(), 0.0f);
    ++panel;
  };
  for (const Step& s : steps) {
    if (s.t == 0 && s.m == (panel + 1) * 512) end_panel();
    for (int64_t j = 0; j < o; ++j) {
      const auto at = static_cast<size_t>(s.m * o + j), of_w = static_cast<size_t>(j * taps + s.t);
      const auto of_x = static_cast<size_t>(s.p * channels + j / mult);
      if (s.p < 0 && c.options.pad_value == 0) continue;
      const float value = s.p < 0 ? pad(j / mult, false) : static_cast<float>(xv[of_x]);
      y[at] = std::fma(value, static_cast<float>(wv[of_w]), y[at]);
      const float number = s.p < 0 ? pad(j / mult, !x.scale.empty()) : x.numbers[of_x];
      part[of_w] = std::fma(of_gradient(gv[at], x.scale, 0, c.modes.gw), number, part[of_w]);
      if (s.p >= 0) gx[of_x] = std::fma(of_gradient(gv[at], w.scale, j, c.modes.gx), w.numbers[of_w], gx[of_x]);
    }
  }
  end_panel();
  for (size_t i = 0; i < y.size(); ++i)
    if (c.bias.defined()) y[i] = y[i] + c.bias.as<float>()[i % static_cast<size_t>(o)];
  return {Tensor::from(y, c.gy.shape()), Tensor::from(gx, c.x.shape()), Tensor::from(gw, c.w.shape())};
}

inline std::string first_wrong(const DepthwiseRun& got, const DepthwiseRun& expected) {
  for (const std::string& text :
       {unequal("y", got.y, expected.y), unequal("gx", got.gx, expected.gx), unequal("gw", got.gw, expected.gw)})
    if (!text.empty()) return text;
  return "";
}

}  // namespace bitgrad::test
