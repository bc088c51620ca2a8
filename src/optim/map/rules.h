// Maps of update rules.
#pragma once

#include <cmath>
#include <cstdint>

#include "bitgrad/base/math.h"
#include "bitgrad/base/step_scalars.h"
#include "optim/map/list.h"

namespace bitgrad {

// Learning rate and decoupled weight decay of a step: as values, or while work is recorded from the scalars in memory
// (UpdatePiece).
struct StepRate {
  float lr, weight_decay;
  const StepScalars* live;
  float lr_factor, base_decay;

  BITGRAD_HD float rate() const { return live != nullptr ? live->lr * lr_factor : lr; }
  // w - (lr * weight_decay) * w.
  BITGRAD_HD float decayed(float w) const {
    const float decay = live != nullptr ? base_decay * live->decay : weight_decay;
    return decay != 0.0f ? w - (rate() * decay) * w : w;
  }
};

namespace maps {

// w = decayed w - min(lr, cap) * g.
struct DirectedStep {
  StepRate step;
  float cap;  // +Inf: none
  int age;    // at least 0: live->age[age].c2 instead of cap
  const float* g;
  float* w;
  BITGRAD_HD void operator()(int64_t i) const {
    const float most = age >= 0 && step.live != nullptr ? step.live->age[age].c2 : cap, lr = step.rate();
    w[i] = step.decayed(w[i]) - (lr < most ? lr : most) * g[i];
  }
};

// m = lerp(m, g, 1 - mu);  g = nesterov ? lerp(g, m, mu) : m;  mu = momentum * factor.
struct MixMomentum {
  float momentum, factor;
  const StepScalars* live;
  bool nesterov;
  float *m, *g;
  BITGRAD_HD void operator()(int64_t i) const {
    const float mu = momentum * (live != nullptr ? live->momentum : factor), rest = 1.0f - mu;
    const float mean = math::lerp(m[i], g[i], rest, mu);
    m[i] = mean;
    g[i] = nesterov ? math::lerp(g[i], mean, mu, rest) : mean;
  }
};

// w = decayed w - lr * sign(lerp(m, g, a1));  m = lerp(m, g, a2); the sign of 0 is 0. a = 1 - b.
struct LionUpdate {
  StepRate step;
  float a1, b1, a2, b2;
  const float* g;
  float *w, *m;
  BITGRAD_HD void operator()(int64_t i) const {
    const float u = math::lerp(m[i], g[i], a1, b1);
    const float sign = u > 0.0f ? 1.0f : (u < 0.0f ? -1.0f : u);
    w[i] = step.decayed(w[i]) - step.rate() * sign;
    m[i] = math::lerp(m[i], g[i], a2, b2);
  }
};

// v = lerp(v, g * g, a), a = live->age[age].c1 while work is recorded;  g = g / sqrt(max(v, least)).
struct DivideByRoot {
  float a;
  const StepScalars* live;
  int age;
  float least;
  float *v, *g;
  BITGRAD_HD void operator()(int64_t i) const {
    const float rate = live != nullptr ? live->age[age].c1 : a;
    const float mean = math::lerp(v[i], g[i] * g[i], rate, 1.0f - rate);
    v[i] = mean;
    g[i] = g[i] / std::sqrt(mean > least ? mean : least);
  }
};

// mean = lerp(mean, sums / count, a), a = live->age[age].c1 while work is recorded and age is at least 0.
struct FollowMeans {
  float a, b;
  const StepScalars* live;
  int age;
  float count;
  const float* sums;
  float* mean;
  BITGRAD_HD void operator()(int64_t i) const {
    const bool from_live = live != nullptr && age >= 0;
    const float rate = from_live ? live->age[age].c1 : a, rest = from_live ? 1.0f - rate : b;
    mean[i] = math::lerp(mean[i], sums[i] / count, rate, rest);
  }
};

// g = g / sqrt(max(rows[i] * columns[j] / max(*sum / n, least), least * least)), for row i of g.
struct DivideByFactored {
  const float *rows, *columns, *sum;
  float n, least;
  int64_t cols;
  float* g;
  BITGRAD_HD void operator()(int64_t i) const {
    const float mean = *sum / n, row = rows[i] / (mean > least ? mean : least), floor = least * least;
    float* const out = g + i * cols;
    for (int64_t j = 0; j < cols; ++j) {
      const float v = row * columns[j];
      out[j] = out[j] / std::sqrt(v > floor ? v : floor);
    }
  }
};

// *scale = max(least, sqrt(*squares_of_w / n)) / max(1, sqrt(*squares_of_g / n) / most).
struct RelativeSize {
  const float *squares_of_w, *squares_of_g;
  float n, least, most;
  float* scale;
  BITGRAD_HD void operator()(int64_t) const {
    const float w = std::sqrt(*squares_of_w / n), g = std::sqrt(*squares_of_g / n) / most;
    *scale = (w > least ? w : least) / (g > 1.0f ? g : 1.0f);
  }
};

// x = x * *by.
struct ScaleByScalar {
  const float* by;
  float* x;
  BITGRAD_HD void operator()(int64_t i) const { x[i] = x[i] * *by; }
};

// norms = sqrt(sums) * factor + eps.
struct NormsOfSquares {
  float factor, eps;
  float* sums;
  BITGRAD_HD void operator()(int64_t i) const { sums[i] = std::sqrt(sums[i]) * factor + eps; }
};

// x = x / norms of its matrix; index i is a row of `cols` elements.
struct DivideByNorms {
  const float* norms;
  int64_t rows, cols;  // of a matrix
  float* x;
  BITGRAD_HD void operator()(int64_t i) const {
    const float norm = norms[i / rows];
    float* const row = x + i * cols;
    for (int64_t j = 0; j < cols; ++j) row[j] = row[j] / norm;
  }
};

// p = b * s + c * ss.
struct SecondDegree {
  float b, c;
  const float *s, *ss;
  float* p;
  BITGRAD_HD void operator()(int64_t i) const { p[i] = b * s[i] + c * ss[i]; }
};

// Adds a to the diagonals of consecutive [k, k] matrices; index i is a row.
struct AddToDiagonal {
  float a;
  int64_t k;
  float* p;
  BITGRAD_HD void operator()(int64_t i) const { p[i * k + i % k] = p[i * k + i % k] + a; }
};

// Copies what lies below the diagonals of consecutive [k, k] matrices to its place above; index i is a row, or one of
// `pieces` of it: every pieces-th column.
template <typename T>
struct MirrorBelow {
  int64_t k, pieces;
  T* p;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t row = i / pieces, r = row % k;
    T* const matrix = p + (row - r) * k;
    for (int64_t c = r + 1 + i % pieces; c < k; c += pieces) matrix[r * k + c] = matrix[c * k + r];
  }
};
struct MirrorFloats : MirrorBelow<float> {};
struct MirrorBf16 : MirrorBelow<uint16_t> {};

// Row i of x becomes x / (sqrt(means[i]) + eps).
struct DivideRowsByRoots {
  const float* means;
  float eps;
  int64_t cols;
  float* x;
  BITGRAD_HD void operator()(int64_t i) const {
    const float by = 1.0f / (std::sqrt(means[i]) + eps);
    float* const row = x + i * cols;
    for (int64_t j = 0; j < cols; ++j) row[j] = row[j] * by;
  }
};

// *scale = sqrt(*before) / (sqrt(*after) + eps).
struct KeepNorm {
  const float *before, *after;
  float eps;
  float* scale;
  BITGRAD_HD void operator()(int64_t) const { *scale = std::sqrt(*before) / (std::sqrt(*after) + eps); }
};

}  // namespace maps
}  // namespace bitgrad
