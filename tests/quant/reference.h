// The formulas of docs/numerics.md, sections 2 and 3, written a second time, element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bitgrad/base/math.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/quant/quantizer.h"
#include "support/draw_codes.h"

namespace bitgrad::test {

inline int64_t block_of(const Granularity& g, int64_t rows, int64_t cols, int64_t r, int64_t c) {
  (void)rows;
  if (g.kind == Granularity::kTensor) return 0;
  if (g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0)) return r;
  if (g.kind == Granularity::kChannel) return c;
  return g.axis == 0 ? r / g.group * cols + c : r * ((cols + g.group - 1) / g.group) + c / g.group;
}

// Section 8: chunks of 1024, 16 lanes, tree.
inline float lane_sum(const std::vector<float>& x) {
  std::vector<float> parts;
  for (size_t at = 0; at < x.size(); at += 1024) {
    float lane[16] = {};
    for (size_t i = at; i < std::min(x.size(), at + 1024); ++i) lane[(i - at) % 16] += x[i];
    for (int d = 8; d > 0; d /= 2)
      for (int l = 0; l < d; ++l) lane[l] += lane[l + d];
    parts.push_back(lane[0]);
  }
  while (parts.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i < parts.size(); i += 2)
      next.push_back(i + 1 < parts.size() ? parts[i] + parts[i + 1] : parts[i]);
    parts = next;
  }
  return parts.empty() ? 0.0f : parts[0];
}

// What the page says about one block.
struct BlockParams {
  float s = 1, m = 0;
  int32_t z = 0;
  float statistic = 0;
};

inline float pow2_up(float s) {
  int e;
  return std::frexp(s, &e) == 0.5f ? s : std::ldexp(1.0f, e);
}

// The nearest fp16 number, ties to even, by division: nothing of ours.
inline float nearest_fp16(float x) {
  const double a = std::fabs(static_cast<double>(x));
  if (!(a < 65520)) return std::copysign(std::numeric_limits<float>::infinity(), x);
  const int e = a < std::ldexp(1.0, -14) ? -14 : std::ilogb(a);
  const double unit = std::ldexp(1.0, e - 10);
  return static_cast<float>(std::copysign(std::nearbyint(a / unit) * unit, static_cast<double>(x)));
}
inline float rounded_scale(const QuantSpec& spec, float s) {
  if (spec.pow2) s = pow2_up(s);
  return spec.scale_dtype == dtypes::fp16 ? std::max(nearest_fp16(s), std::ldexp(1.0f, -24)) : s;
}
inline float rounded_offset(const QuantSpec& spec, float m) {
  return spec.scale_dtype == dtypes::fp16 ? nearest_fp16(m) : m;
}

// Schemes whose params do not follow from ranges, means and maxima of plain numbers alone. x is not empty.
inline bool fit_special(const QuantSpec& spec, const std::vector<float>& x, BlockParams& p) {
  const std::string& k = spec.scheme;
  const float qmax = static_cast<float>(spec.dtype.info().qmax), n = static_cast<float>(x.size());
  const float eps = spec.eps.value_or(std::ldexp(1.0f, -126));
  std::vector<float> size, away, squares, above;
  float lower = 0, largest = 0, tanh_largest = 0, count = 0;
  for (const float v : x) {
    size.push_back(std::fabs(v));
    lower = std::min(lower, v);
    largest = std::max(largest, std::fabs(v));
    tanh_largest = std::max(tanh_largest, std::fabs(math::tanh(v)));
  }
  const float mean_size = x.empty() ? 0.0f : lane_sum(size) / n, mean = x.empty() ? 0.0f : lane_sum(x) / n;
  if (k == "ternary_threshold") {
    p.statistic = 0.7f * mean_size;
    for (const float v : size) above.push_back(v > p.statistic ? v : 0.0f), count += v > p.statistic ? 1.0f : 0.0f;
    p.s = count > 0 ? std::max(lane_sum(above) / count, eps) : eps;
  } else if (k == "dorefa_weight") {
    p = {2.0f / qmax, -1.0f, 0, std::max(tanh_largest, eps)};
  } else if (k == "dorefa_activation") {
    p.s = 1.0f / qmax;
  } else if (k == "dorefa_gradient") {
    p.s = std::max((largest + largest) / qmax, eps);
    p.m = 0.0f - largest;
  } else if (k == "pact") {
    p = {spec.first_clip / qmax, 0, 0, spec.first_clip};
  } else if (k == "lsq" || k == "lsq_plus") {
    p.s = std::max(2 * mean_size / std::sqrt(qmax), std::ldexp(1.0f, -20));
    if (k == "lsq_plus" && spec.dtype.info().qmin == 0) {
      p.m = lower;
      if (p.s <= std::ldexp(1.0f, -20)) p.m -= std::ldexp(qmax > 1 ? std::floor(qmax / 2) : 0.5f, -20);
    }
  } else if (k == "standardized_binary") {
    for (const float v : x) away.push_back(std::fabs(v - mean)), squares.push_back((v - mean) * (v - mean));
    const float sd = n > 1 ? std::max(std::sqrt(lane_sum(squares) / (n - 1)), eps) : 1.0f;
    const bool underflows = sd < std::ldexp(1.0f, -63);  // squares of such a block are not numbers to divide by
    const float unit = x.empty() || underflows ? eps : std::max(lane_sum(away) / n / sd, eps);
    p.s = static_cast<float>(std::exp2(std::floor(std::log2(static_cast<double>(unit)) + 0.5)));
    p.statistic = mean;
  } else {
    return false;
  }
  return true;
}

inline BlockParams fit_block(const QuantSpec& spec, const std::vector<float>& x) {
  const DTypeInfo& d = spec.dtype.info();
  const float half = spec.reduce_range ? 2.0f : 1.0f;
  const float qmin = static_cast<float>(d.qmin) / half, qmax = std::floor(static_cast<float>(d.qmax) / half);
  const float tiny = std::ldexp(1.0f, -126), n = static_cast<float>(x.size());
  const std::string& k = spec.scheme;
  const float eps = spec.eps.value_or(k == "ternary" ? 1e-5f : (k == "minmax_offset" ? 1e-6f : tiny));
  BlockParams p;
  if (k == "fixed") return {rounded_scale(spec, spec.scale), rounded_offset(spec, spec.offset), 0};
  if (k == "binary" && !spec.alpha) return p;
  if (fit_special(spec, x, p)) {
    p.s = rounded_scale(spec, p.s);
    p.m = rounded_offset(spec, p.m);
    return p;
  }
  if (x.empty()) return {rounded_scale(spec, eps), 0, 0};
  float lo = 0, hi = 0, a = 0, l = x[0], h = x[0];
  std::vector<float> size, positive;
  float above = 0;
  for (const float v : x) {
    lo = std::min(lo, v);
    hi = std::max(hi, v);
    l = std::min(l, v);
    h = std::max(h, v);
    a = std::max(a, std::fabs(v));
    size.push_back(std::fabs(v));
    positive.push_back(v > 0 ? v : 0.0f);
    above += v > 0 ? 1.0f : 0.0f;
  }
  if (k == "affine") p.s = std::max((hi - lo) / (qmax - qmin), eps);
  if (k == "symmetric") p.s = std::max(std::max(-lo, hi) / ((qmax - qmin) / 2), eps);
  if (k == "symmetric_no_clip") p.s = std::max(std::max(lo / qmin, hi / qmax), eps);
  if (k == "absmax") p.s = std::max(a / qmax, eps);
  if (k == "minmax_offset") p.s = std::max(h - l, eps) / (qmax - qmin);
  if (k == "step") p.s = above > 0 ? std::max(lane_sum(positive) / above, eps) : eps;
  if (k == "binary" || k == "ternary") p.s = std::max(lane_sum(size) / n, eps);
  if (k == "codebook") {
    float largest = 0;
    for (const float level : d.levels) largest = std::max(largest, std::fabs(level));
    p.s = std::max(a / largest, eps);
  }
  p.s = rounded_scale(spec, p.s);
  if (k == "affine") p.z = static_cast<int32_t>(std::min(std::max(qmin - std::nearbyint(lo / p.s), qmin), qmax));
  if (k == "minmax_offset") p.m = rounded_offset(spec, l - p.s * qmin);
  return p;
}

struct CodePass {
  double number;  // of the code: integer, +-1 or level
  bool passes;    // rule clip
};

// `draw`: nullptr for rounding to nearest.
inline CodePass code_of(const QuantSpec& spec, const BlockParams& p, float x, const uint16_t* draw = nullptr) {
  const DTypeInfo& d = spec.dtype.info();
  const std::string& k = spec.scheme;
  if (k == "binary") return {x >= 0 ? 1.0 : -1.0, std::fabs(x) <= 1};
  if (k == "step") return {x > 0 ? 1.0 : 0.0, std::fabs(x) <= 1};
  if (k == "standardized_binary") return {x >= p.statistic ? 1.0 : -1.0, true};
  if (k == "ternary_threshold") return {std::fabs(x) > p.statistic ? (x > 0 ? 1.0 : -1.0) : 0.0, true};
  if (d.kind == DTypeKind::kCodebook) {
    const double u = x * (1.0f / p.s);
    double best = d.levels[0];
    for (const float level : d.levels) {
      const double middle =
          (best + static_cast<double>(level)) / 2;  // exact: the nearer of two levels lies on this side of it
      if (level > best ? u > middle : (level < best && u <= middle)) best = level;
    }
    return {best, true};
  }
  const double half = spec.reduce_range ? 2.0 : 1.0;
  double lo = static_cast<double>(d.qmin) / half, hi = std::floor(static_cast<double>(d.qmax) / half);
  if (k == "absmax") lo = std::max(lo, -hi);
  float u;
  double z = p.z;
  if (k == "dorefa_weight") {
    const float ratio = math::tanh(x) / (p.statistic + p.statistic);
    u = static_cast<float>(hi) * (ratio + 0.5f);
  } else if (k == "dorefa_activation") {
    u = static_cast<float>(hi) * x;
  } else if (k == "fixed" || k == "dorefa_gradient" || k == "lsq" || k == "lsq_plus") {
    u = (x - p.m) / p.s;
  } else if (k == "minmax_offset") {
    const float l = p.m + p.s * static_cast<float>(d.qmin);
    u = (x - l) / p.s;
    z = lo;
  } else if (k == "ternary" || spec.div) {
    u = x / p.s;
  } else {
    u = x * (1.0f / p.s);
  }
  if (draw == nullptr) {
    const double q = static_cast<double>(std::nearbyint(u)) + z;
    return {std::min(std::max(q, lo), hi), q >= lo && q <= hi};
  }
  const double q = static_cast<double>(test::code_by_draw(u + static_cast<float>(z), lo, hi, *draw));
  return {std::min(std::max(q, lo), hi), q >= lo && q <= hi};
}

// The parameters of all blocks of x [rows, cols].
inline std::vector<BlockParams> fit_blocks(const QuantSpec& spec, const std::vector<float>& x, int64_t rows,
                                           int64_t cols) {
  std::vector<std::vector<float>> blocks(static_cast<size_t>(scale_count(spec.granularity, rows, cols)));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      blocks[static_cast<size_t>(block_of(spec.granularity, rows, cols, r, c))].push_back(
          x[static_cast<size_t>(r * cols + c)]);
  std::vector<BlockParams> out;
  for (const auto& block : blocks) out.push_back(fit_block(spec, block));
  return out;
}

inline Tensor tensor_of(const Shape& shape, const std::vector<float>& x) {
  Tensor t = Tensor::empty(shape, dtypes::fp32);
  std::copy(x.begin(), x.end(), t.as<float>());
  return t;
}

// Numbers in [-1, 1) times size, with exact zeros and multiples of 1/8 among them.
inline std::vector<float> numbers_for_test(int64_t n, float size, uint64_t seed) {
  const RandomStream stream{seed, Purpose::kUser, 7, 0};
  std::vector<float> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const float u = 2 * stream.uniform(static_cast<uint64_t>(i)) - 1;
    x[static_cast<size_t>(i)] = size * (i % 5 == 3 ? std::nearbyint(u * 8) / 8 : (i % 11 == 7 ? 0.0f : u));
  }
  return x;
}

inline bool accepts(const QuantSpec& spec) {
  try {
    find_quantizer(spec.scheme).check(spec, false);
  } catch (const Error&) {
    return false;
  }
  return true;
}

// Every (scheme, dtype) that the scheme accepts at granularity channel(0).
inline std::vector<QuantSpec> specs_of(const std::vector<std::string_view>& names) {
  std::vector<QuantSpec> out;
  for (const std::string_view name : names)
    for (const DType dtype : all_dtypes()) {
      QuantSpec spec;
      spec.dtype = dtype;
      spec.scheme = name;
      spec.granularity = Granularity::channel(0);
      if (accepts(spec)) out.push_back(spec);
    }
  return out;
}
// Schemes whose backward is the rule of section 3 alone.
inline std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> out = specs_of({"fixed", "absmax", "symmetric", "symmetric_no_clip", "affine", "minmax_offset",
                                         "step", "binary", "ternary", "codebook"});
  for (QuantSpec& spec : out) spec.granularity = Granularity::tensor();
  return out;
}
// The others.
inline std::vector<QuantSpec> special_specs() {
  return specs_of({"ternary_threshold", "dorefa_weight", "dorefa_activation", "dorefa_gradient", "pact", "lsq",
                   "lsq_plus", "standardized_binary"});
}

}  // namespace bitgrad::test
