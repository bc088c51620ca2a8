// The update rules of docs/numerics.md section 6 in plain code, with every choice of masters and moments: what the
// tests compare the library with. Numbers are kept decoded, as floats.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/optim/optimizer.h"
#include "support/draw_codes.h"

namespace bitgrad::test {

struct Reference {
  OptimizerSpec spec;  // without open numbers (fill_defaults)
  MomentKind moments = MomentKind::kFp32;
  MasterKind master = MasterKind::kFp32;  // kNone: int8 absmax codes, one scale a row
  int64_t rows = 0, cols = 0;
  std::string path = "w";
  uint64_t seed = 1;
  std::vector<float> w{}, part0{}, part1{};
  std::vector<int> codes{};
  std::vector<float> scales{};
  double power1 = 1, power2 = 1;
  uint32_t steps = 0;

  static float bf16(float x, int draw) {  // draw < 0: nearest even
    uint32_t u = std::bit_cast<uint32_t>(x);
    u += draw < 0 ? 0x7FFFu + ((u >> 16) & 1u) : static_cast<uint32_t>(draw);
    return std::bit_cast<float>(u & 0xFFFF0000u);
  }

  void keep(std::vector<float>& x, uint64_t part, bool square, bool sr) const {
    if (moments == MomentKind::kFp32) return;
    const RandomStream stream{seed, Purpose::kMoment, site_id(path), steps};
    const auto draw = [&](size_t e) { return stream.bits16((part << 40) + e); };
    if (moments == MomentKind::kBf16) {
      for (size_t e = 0; e < x.size(); ++e) x[e] = bf16(x[e], sr ? draw(e) : -1);
      return;
    }
    for (size_t b = 0; b < x.size(); b += 256) {
      const size_t end = std::min(b + 256, x.size());
      float top = 0;
      for (size_t e = b; e < end; ++e) top = std::max(top, square ? std::sqrt(x[e]) : std::fabs(x[e]));
      const MomentForm form =
          moment_form(moments == MomentKind::kInt8 ? 8 : 4, square ? MomentValues::kSquares : MomentValues::kMeans);
      const float s = std::max(top / static_cast<float>(moment_number(form.most, form)), 0x1p-126f), inverse = 1.0f / s;
      for (size_t e = b; e < end; ++e) {
        const int q = moment_code((square ? std::sqrt(x[e]) : std::fabs(x[e])) * inverse, form,
                                  moment_draw(stream, (part << 40) + e));
        const float size = s * static_cast<float>(moment_number(square && x[e] > 0 ? std::max(q, 1) : q, form));
        x[e] = square ? size * size : std::copysign(size, x[e]);
      }
    }
  }

  static float average(float old, float x, double beta) {
    const float a = static_cast<float>(1.0 - beta), b = static_cast<float>(beta);
    return a < 0.5f ? old + a * (x - old) : x + b * (old - x);
  }

  float move(size_t e, float wi, float g, float lr, float wd) {
    if (spec.name == "sgd") {
      g = g + wd * wi;
      if (spec.momentum == 0) return wi - lr * g;
      part0[e] = *spec.momentum * part0[e] + g;
      return wi - lr * (*spec.nesterov ? g + *spec.momentum * part0[e] : part0[e]);
    }
    const float c1 = static_cast<float>(1 - power1), c2 = static_cast<float>(1 - power2);
    if (spec.name == "adamw")
      wi = wi - (lr * wd) * wi;
    else
      g = g + wd * wi;
    part0[e] = average(part0[e], g, *spec.beta1);
    part1[e] = average(part1[e], g * g, *spec.beta2);
    return wi - lr * ((part0[e] / c1) / (std::sqrt(part1[e] / c2) + spec.eps));
  }

  void keep_numbers() {
    const RandomStream stream{seed, Purpose::kUpdate, site_id(path), steps};
    if (master == MasterKind::kBf16)
      for (size_t e = 0; e < w.size(); ++e) w[e] = bf16(w[e], stream.bits16(e));
    if (master != MasterKind::kNone) return;
    codes.resize(w.size());
    scales.resize(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      float top = 0;
      for (int64_t c = 0; c < cols; ++c) top = std::max(top, std::fabs(w[static_cast<size_t>(r * cols + c)]));
      const float s = std::max(top / 127.0f, 0x1p-126f), inverse = 1.0f / s;
      scales[static_cast<size_t>(r)] = s;
      for (int64_t c = 0; c < cols; ++c) {
        const size_t e = static_cast<size_t>(r * cols + c);
        codes[e] = std::clamp(static_cast<int>(code_by_draw(w[e] * inverse, -127, 127, stream.bits16(e))), -127, 127);
        w[e] = s * static_cast<float>(codes[e]);
      }
    }
  }

  // g: sums over `samples` samples.
  void step(const std::vector<float>& g, float lr, float samples, float wd) {
    part0.resize(w.size(), 0.0f);
    part1.resize(w.size(), 0.0f);
    power1 *= *spec.beta1;
    power2 *= *spec.beta2;
    for (size_t e = 0; e < w.size(); ++e) w[e] = move(e, w[e], g[e] / samples, lr, wd);
    keep(part0, 0, false, false);
    if (spec.name != "sgd") keep(part1, 1, true, true);
    keep_numbers();
    ++steps;
  }
};

}  // namespace bitgrad::test
