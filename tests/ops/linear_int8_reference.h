// int8 mode of a backward product, written out once more: fold, absmax codes, integer sum, scale. docs/numerics.md
// section 5.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/tensor/tensor.h"
#include "support/draw_codes.h"

namespace bitgrad::test {

inline const RandomStream kGradientDraws{11, Purpose::kGradient, 0xABCDu, 5};

struct Int8Problem {
  Tensor gy;                // values of the edge
  bool transposed = false;  // rows of gy are contracted
  Tensor other;
  bool along = false;  // the scale and zero of `other` run along the contracted index (and by group)
  int64_t group = 0;   // 0: none
  const RandomStream* sr = nullptr;
};

// The codes and the scale of contracted line f of gy, folded by fold(k).
struct Int8Line {
  std::vector<int64_t> q;
  float scale;
};
template <typename Fold>
Int8Line int8_line(const Int8Problem& p, const std::vector<double>& gy, int64_t f, uint64_t first, Fold fold) {
  const int64_t cols = p.gy.cols(), k_count = p.transposed ? p.gy.rows() : cols;
  std::vector<float> g;
  float upper = 0;
  for (int64_t k = 0; k < k_count; ++k) {
    const float v = static_cast<float>(gy[static_cast<size_t>(p.transposed ? k * cols + f : f * cols + k)]);
    g.push_back(v * fold(k));
    upper = std::max(upper, std::fabs(g.back()));
  }
  Int8Line out{{}, std::max(upper / 127.0f, 0x1p-126f)};
  const float inverse = 1.0f / out.scale;
  for (int64_t k = 0; k < k_count; ++k) {
    const float u = g[static_cast<size_t>(k)] * inverse;
    int64_t q = static_cast<int64_t>(std::rint(u));
    if (p.sr != nullptr) {
      const uint64_t element = first + static_cast<uint64_t>(p.transposed ? k * cols + f : f * cols + k);
      q = test::code_by_draw(u, -127, 127, p.sr->bits16(element));
    }
    out.q.push_back(std::min<int64_t>(std::max<int64_t>(q, -127), 127));
  }
  return out;
}

// C[f,n] as int8 mode must give it, bit for bit.
inline std::vector<double> int8_reference(const Int8Problem& p) {
  const std::vector<double> gy = p.gy.elements(), codes = p.other.elements();
  const ScaleMap map = p.other.scale_map();
  const int64_t free = p.transposed ? p.gy.cols() : p.gy.rows(), k_count = p.other.rows(), n = p.other.cols();
  const int64_t width = p.group > 0 ? p.group : n;
  std::vector<double> out(static_cast<size_t>(free * n));
  for (int64_t c0 = 0, g = 0; c0 < n; c0 += width, ++g)
    for (int64_t f = 0; f < free; ++f) {
      const auto fold = [&](int64_t k) { return p.along && map.scale ? map.scale[map.index(k, c0)] : 1.0f; };
      const Int8Line line = int8_line(p, gy, f, static_cast<uint64_t>(g * p.gy.numel()), fold);
      for (int64_t j = c0; j < std::min(n, c0 + width); ++j) {
        int64_t acc = 0;
        for (int64_t k = 0; k < k_count; ++k)
          acc += line.q[static_cast<size_t>(k)] * (static_cast<int64_t>(codes[static_cast<size_t>(k * n + j)]) -
                                                   (map.zero ? map.zero[map.index(k, j)] : 0));
        const float s = p.along || map.scale == nullptr ? 1.0f : map.scale[map.index(0, j)];
        out[static_cast<size_t>(f * n + j)] = static_cast<float>(acc) * (line.scale * s);
      }
    }
  return out;
}

}  // namespace bitgrad::test
