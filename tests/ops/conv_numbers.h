// What a convolution must give by docs/numerics.md sections 4 and 5, from the loops of support/conv_reference.h: exact
// products of integers, products in double with their magnitudes, int8 gradients bit for bit.
#pragma once

#include <algorithm>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "ops/linear_int8_reference.h"
#include "ops/linear_support.h"
#include "support/conv_reference.h"

namespace bitgrad::test {

struct ConvCase {
  ConvGeometry g;
  Tensor x, w, bias, gy;
  ProductModes modes;
};

// The parameters of an operand's element, and its number before scaling.
struct Numbers {
  const Tensor& t;
  std::vector<double> codes = t.elements();
  ScaleMap map = t.scale_map();

  float scale(int64_t r, int64_t c) const { return map.scale ? map.scale[map.index(r, c)] : 1.0f; }
  int64_t zero(int64_t r, int64_t c) const { return map.zero ? map.zero[map.index(r, c)] : 0; }
  float offset(int64_t r, int64_t c) const { return map.offset ? map.offset[map.index(r, c)] : 0.0f; }
  double value(double code, int64_t r, int64_t c) const {
    if (map.trivial()) return code;
    float y = static_cast<float>(code);
    if (map.zero) y = y - static_cast<float>(zero(r, c));
    y = scale(r, c) * y;
    return map.offset ? y + offset(r, c) : y;
  }
  // Of a value; s*q and m of a real offset count apart, because sums of codes are scaled before they meet.
  double magnitude(double code, int64_t r, int64_t c) const {
    if (!map.offset) return std::fabs(value(code, r, c));
    return std::fabs(double{scale(r, c)} * code) + std::fabs(double{offset(r, c)});
  }
  // Codes less zero points.
  std::vector<int64_t> integers() const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < t.numel(); ++i)
      out.push_back(static_cast<int64_t>(codes[static_cast<size_t>(i)]) - zero(i / t.cols(), i % t.cols()));
    return out;
  }
};

// What pixels outside hold: of kind sign with a pad value its code, else 0.
inline std::vector<double> pad_values(const ConvCase& c, bool magnitude = false) {
  const Numbers x{c.x};
  std::vector<double> out(static_cast<size_t>(c.g.c));
  for (int64_t i = 0; i < c.g.c && c.g.options.pad_value != 0; ++i)
    out[static_cast<size_t>(i)] =
        magnitude ? x.magnitude(c.g.options.pad_value, 0, i) : x.value(c.g.options.pad_value, 0, i);
  return out;
}
inline std::vector<int64_t> pad_integers(const ConvCase& c) {
  const Numbers x{c.x};
  std::vector<int64_t> out(static_cast<size_t>(c.g.c));
  for (int64_t i = 0; i < c.g.c && c.g.options.pad_value != 0; ++i)
    out[static_cast<size_t>(i)] = c.g.options.pad_value - x.zero(0, i);
  return out;
}

// Section 4, "which products are integer products", for x per tensor. No code stands beside real offsets for a pixel
// outside: such windows are floats.
inline bool integer_conv(const ConvGeometry& g, const Tensor& x, const Tensor& w) {
  if (x.quant() && x.quant()->offset && reads_outside(g)) return false;
  if (!integer_kind(x.dtype()) || !integer_kind(w.dtype())) return false;
  const Granularity of_x = x.quant() ? x.quant()->granularity : Granularity(),
                    of_w = w.quant() ? w.quant()->granularity : Granularity();
  const bool groups = of_w.kind == Granularity::kGroup && of_w.axis == -1;
  const bool rows = of_w.kind == Granularity::kToken || (of_w.kind == Granularity::kChannel && of_w.axis == 0);
  if (of_x.kind != Granularity::kTensor || !(groups || rows || of_w.kind == Granularity::kTensor)) return false;
  return !(groups && x.quant() && x.quant()->offset);
}

// y of an integer product by the epilogues of section 4, bit for bit.
inline std::vector<double> exact_conv(const ConvCase& c) {
  const Numbers x{c.x}, w{c.w};
  const ConvGeometry& g = c.g;
  const std::vector<int64_t> qx = x.integers(), qw = w.integers(), pads = pad_integers(c);
  const bool grouped = c.w.quant() && c.w.quant()->granularity.kind == Granularity::kGroup;
  const int64_t k = g.k(), width = grouped ? c.w.quant()->granularity.group : std::max<int64_t>(k, 1),
                runs = grouped ? (k + width - 1) / width : 1, count = g.y_shape().numel();
  std::vector<int64_t> ab(static_cast<size_t>(count * runs)), a = ab, b = ab, valid = ab;
  for_products(g, [&](int64_t iy, int64_t ix, int64_t channel, int64_t iw) {
    if (ix < 0 && g.options.pad_value == 0) return;
    const size_t at = static_cast<size_t>(iy * runs + iw % k / width);
    const int64_t p = ix < 0 ? pads[static_cast<size_t>(channel)] : qx[static_cast<size_t>(ix)];
    ab[at] += p * qw[static_cast<size_t>(iw)];
    a[at] += p;
    b[at] += qw[static_cast<size_t>(iw)];
    ++valid[at];
  });
  std::vector<double> out;
  const float sx = x.scale(0, 0), mx = x.offset(0, 0);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t j = i % g.o;
    float y = 0;
    for (int64_t r = 0; r < runs && grouped; ++r) {
      const size_t at = static_cast<size_t>(i * runs + r);
      float term = static_cast<float>(ab[at]) * w.scale(j, r * width);
      if (w.map.offset) term = term + static_cast<float>(a[at]) * w.offset(j, r * width);
      y = y + term;
    }
    const size_t at = static_cast<size_t>(i * runs);
    const float sw = w.scale(j, 0), mw = w.offset(j, 0);
    if (grouped) y = y * sx;
    if (!grouped) y = static_cast<float>(ab[at]) * (sx * sw);
    if (!grouped && w.map.offset) y = y + static_cast<float>(a[at]) * (sx * mw);
    if (x.map.offset) y = y + static_cast<float>(b[at]) * (mx * sw);
    if (x.map.offset && w.map.offset) y = y + static_cast<float>(valid[at]) * (mx * mw);
    if (c.bias.defined()) y = y + c.bias.as<float>()[j];
    out.push_back(y);
  }
  return out;
}

inline std::vector<double> magnitudes(std::vector<double> v) {
  for (double& x : v) x = std::fabs(x);
  return v;
}
inline std::vector<double> magnitudes(const Tensor& t) {
  const Numbers numbers{t};
  std::vector<double> out;
  for (int64_t i = 0; i < t.numel(); ++i)
    out.push_back(numbers.magnitude(numbers.codes[static_cast<size_t>(i)], i / t.cols(), i % t.cols()));
  return out;
}

// The number of gy that a product of mode fp32 or bf16 takes, and those of the other operand: scales per tensor, or of
// the contracted index, are folded before gy is rounded to bf16.
struct FoldedOperand {
  bool fold = false;  // the scale is in gy
  std::vector<double> numbers;
};
inline FoldedOperand folded(const Tensor& t, bool contracted_rows) {
  FoldedOperand out;
  if (t.quant() && !t.quant()->zero && !t.quant()->offset) {
    const Granularity& g = t.quant()->granularity;
    const bool row = g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0);
    out.fold = g.kind == Granularity::kTensor || (contracted_rows && row);
  }
  out.numbers = out.fold ? t.elements() : t.values();
  return out;
}
inline std::vector<double> rounded_gy(const ConvCase& c, const Tensor& other, bool fold, bool of_w) {
  const Numbers numbers{other};
  std::vector<double> gy = c.gy.elements();
  for (size_t i = 0; i < gy.size(); ++i) {
    const float s = fold ? numbers.scale(of_w ? static_cast<int64_t>(i) % c.g.o : 0, 0) : 1.0f;
    gy[i] = double{bf16_to_float(bf16_from_float(static_cast<float>(gy[i]) * s))};
  }
  return gy;
}

// gx and gw of mode fp32 or bf16, with the sums of magnitudes.
inline Product float_gx(const ConvCase& c) {
  if (c.modes.gx == ProductMode::kFp32) {
    const std::vector<double> gy = c.gy.elements(), w = c.w.values();
    return {conv_gx(c.g, gy, w), conv_gx(c.g, magnitudes(gy), magnitudes(c.w))};
  }
  const FoldedOperand w = folded(c.w, true);
  const std::vector<double> gy = rounded_gy(c, c.w, w.fold, true);
  return {conv_gx(c.g, gy, w.numbers), conv_gx(c.g, magnitudes(gy), w.fold ? magnitudes(w.numbers) : magnitudes(c.w))};
}
inline Product float_gw(const ConvCase& c) {
  if (c.modes.gw == ProductMode::kFp32) {
    const std::vector<double> gy = c.gy.elements();
    return {conv_gw(c.g, gy, c.x.values(), pad_values(c)),
            conv_gw(c.g, magnitudes(gy), magnitudes(c.x), pad_values(c, true))};
  }
  const FoldedOperand x = folded(c.x, false);
  const std::vector<double> gy = rounded_gy(c, c.x, x.fold, false),
                            codes(static_cast<size_t>(c.g.c), static_cast<double>(c.g.options.pad_value));
  const std::vector<double> sizes = x.fold ? magnitudes(x.numbers) : magnitudes(c.x);
  return {conv_gw(c.g, gy, x.numbers, x.fold ? codes : pad_values(c)),
          conv_gw(c.g, magnitudes(gy), sizes, x.fold ? magnitudes(codes) : pad_values(c, true))};
}

// Mode int8, bit for bit: one scale of gy an image for gx (one a pixel where the windows are the pixels, as linear),
// one an output channel for gw.
inline std::vector<double> int8_gx(const ConvCase& c) {
  const Numbers w{c.w};
  const Conv2dOptions& o = c.g.options;
  const bool along = c.w.quant() && c.w.quant()->granularity.kind != Granularity::kTensor;
  const bool pointwise = c.g.taps() == 1 && o.groups == 1 && o.stride == std::array<int64_t, 2>{1, 1} &&
                         o.padding == std::array<int64_t, 4>{};
  const int64_t lines = pointwise ? c.g.pixels() : c.g.n, per_line = (pointwise ? 1 : c.g.windows()) * c.g.o;
  const Int8Problem p{c.gy.reshape({lines, per_line}), false, c.w, along, 0, c.modes.sr};
  const std::vector<double> numbers = c.gy.elements();
  std::vector<int64_t> q;
  std::vector<float> scales;
  for (int64_t l = 0; l < lines; ++l) {
    const Int8Line line = int8_line(p, numbers, l, 0, [&](int64_t i) { return along ? w.scale(i % c.g.o, 0) : 1.0f; });
    q.insert(q.end(), line.q.begin(), line.q.end());
    scales.push_back(line.scale);
  }
  const std::vector<int64_t> sums = conv_gx(c.g, q, w.integers());
  std::vector<double> out;
  const int64_t size = (pointwise ? 1 : c.g.h * c.g.w) * c.g.c;
  for (int64_t i = 0; i < std::ssize(sums); ++i)
    out.push_back(static_cast<float>(sums[static_cast<size_t>(i)]) *
                  (scales[static_cast<size_t>(i / size)] * (along ? 1.0f : w.scale(0, 0))));
  return out;
}
inline std::vector<double> int8_gw(const ConvCase& c) {
  const Numbers x{c.x};
  RandomStream second;
  if (c.modes.sr != nullptr) second = *c.modes.sr;
  second.purpose = Purpose::kGradientWeight;
  const Int8Problem p{c.gy.reshape({c.g.pixels(), c.g.o}), true, c.x, false, 0, c.modes.sr ? &second : nullptr};
  const std::vector<double> numbers = c.gy.elements();
  std::vector<int64_t> q(static_cast<size_t>(c.gy.numel()));
  std::vector<float> scales;
  for (int64_t j = 0; j < c.g.o; ++j) {
    const Int8Line line = int8_line(p, numbers, j, 0, [](int64_t) { return 1.0f; });
    for (int64_t m = 0; m < c.g.pixels(); ++m) q[static_cast<size_t>(m * c.g.o + j)] = line.q[static_cast<size_t>(m)];
    scales.push_back(line.scale);
  }
  const std::vector<int64_t> sums = conv_gw(c.g, q, x.integers(), pad_integers(c));
  std::vector<double> out;
  for (int64_t i = 0; i < std::ssize(sums); ++i) {
    const int64_t j = i / c.g.k(), channel = j / c.g.out_group() * c.g.in_group() + i % c.g.in_group();
    out.push_back(static_cast<float>(sums[static_cast<size_t>(i)]) *
                  (scales[static_cast<size_t>(j)] * x.scale(0, channel)));
  }
  return out;
}

}  // namespace bitgrad::test
