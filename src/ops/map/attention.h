// Attention for devices, row by row, with the arithmetic of the CPU kernels (kernels/attention.h); rotary positions.
#pragma once

#include "bitgrad/base/math.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/attention.h"
#include "kernels/map/pointwise.h"
#include "ops/map/list.h"

namespace bitgrad::maps {
namespace heads {

inline constexpr int kBlock = kernels::kAttentionBlock, kLanes = 16;

BITGRAD_HD inline float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t c = 0; c < n; ++c) sum = sum + a[c] * b[c];
  return sum;
}

}  // namespace heads

// Index: (sample * heads + head) * rows + row.
struct AttentionForward {
  kernels::AttentionArgs args;

  BITGRAD_HD void operator()(int64_t i) const {
    const kernels::AttentionShape& s = args.shape;
    const int64_t row = i % s.rows, head = i / s.rows % s.heads, sample = i / s.rows / s.heads;
    const int64_t kv_head = head / (s.group()), seen = s.first + row + 1;
    const float* const q = args.q + s.of_q(sample, head, row);
    float* const y = args.y + s.of_y(sample, head, row);
    for (int64_t c = 0; c < s.dim; ++c) y[c] = 0;
    float top = -INFINITY, sum = 0;
    const int64_t start = s.start(sample, row);
    for (int64_t key = start / heads::kBlock * heads::kBlock; key < seen; key += heads::kBlock) {
      const int count = static_cast<int>(seen - key < heads::kBlock ? seen - key : heads::kBlock);
      const int begin = static_cast<int>(start > key ? start - key : 0);
      float p[heads::kBlock];
      const float factor = online(q, sample, kv_head, key, begin, count, p, top, sum);
      if (args.dropout.given())
        for (int j = begin; j < count; ++j)
          p[j] = args.dropout.dropped(p[j], kernels::AttentionDropout::element(s, sample, head, row, key + j));
      for (int64_t c = 0; c < s.dim; ++c) {
        float value = y[c] * factor;
        for (int j = begin; j < count; ++j) value = value + p[j] * args.v[s.of_k(sample, kv_head, key + j) + c];
        y[c] = value;
      }
    }
    for (int64_t c = 0; c < s.dim; ++c) y[c] = y[c] / sum;
    if (args.log_sum != nullptr) args.log_sum[i] = top + math::log(sum);
  }

 private:
  BITGRAD_HD float online(const float* q, int64_t sample, int64_t kv_head, int64_t key, int begin, int count, float* p,
                          float& top, float& sum) const {
    float next = top;
    for (int j = begin; j < count; ++j) {
      p[j] = heads::dot(q, args.k + args.shape.of_k(sample, kv_head, key + j), args.shape.dim) * args.shape.scale;
      next = next < p[j] ? p[j] : next;
    }
    for (int j = 0; j < heads::kBlock; ++j) p[j] = j >= begin && j < count ? math::exp(p[j] - next) : 0.0f;
    float lane[heads::kLanes];
    for (int l = 0; l < heads::kLanes; ++l) {
      lane[l] = p[l];
      for (int j = heads::kLanes + l; j < heads::kBlock; j += heads::kLanes) lane[l] = lane[l] + p[j];
    }
    for (int half = heads::kLanes / 2; half >= 1; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
    const float factor = math::exp(top - next);
    sum = sum * factor + lane[0];
    top = next;
    return factor;
  }
};

// dots = sum gy * y. Index as in AttentionForward.
struct AttentionDots {
  kernels::AttentionBackwardArgs args;
  float* dots;
  BITGRAD_HD void operator()(int64_t i) const {
    const kernels::AttentionShape& s = args.shape;
    const int64_t at = s.of_y(i / s.rows / s.heads, i / s.rows % s.heads, i % s.rows);
    dots[i] = heads::dot(args.gy + at, args.y + at, s.dim);
  }
};

// p, including the dropout factor that multiplied the values, and the gradient of the score of one row and key. row:
// index as in AttentionForward.
struct AttentionPair {
  float p, gs;
  BITGRAD_HD AttentionPair(const kernels::AttentionBackwardArgs& args, const float* dots, int64_t q, int64_t k,
                           int64_t y, int64_t row, int64_t key) {
    const kernels::AttentionShape& s = args.shape;
    const uint64_t element = kernels::AttentionDropout::element(s, row, key);
    p = math::exp(heads::dot(args.q + q, args.k + k, s.dim) * s.scale - args.log_sum[row]);
    const float gp = args.dropout.dropped(heads::dot(args.gy + y, args.v + k, s.dim), element);
    gs = (p * (gp - dots[row])) * s.scale;
    p = args.dropout.dropped(p, element);
  }
};

// gq. Index as in AttentionForward.
struct AttentionQueryGradient {
  kernels::AttentionBackwardArgs args;
  const float* dots;
  BITGRAD_HD void operator()(int64_t i) const {
    const kernels::AttentionShape& s = args.shape;
    const int64_t row = i % s.rows, head = i / s.rows % s.heads, sample = i / s.rows / s.heads;
    const int64_t kv_head = head / (s.group()), q = s.of_q(sample, head, row), y = s.of_y(sample, head, row);
    for (int64_t c = 0; c < s.dim; ++c) args.gq[q + c] = 0;
    for (int64_t key = s.start(sample, row); key <= s.first + row; ++key) {
      const int64_t k = s.of_k(sample, kv_head, key);
      const AttentionPair pair(args, dots, q, k, y, i, key);
      for (int64_t c = 0; c < s.dim; ++c) args.gq[q + c] = args.gq[q + c] + pair.gs * args.k[k + c];
    }
  }
};

// gk and gv. Index: (sample * kv_heads + head) * keys + key.
struct AttentionKeyGradient {
  kernels::AttentionBackwardArgs args;
  const float* dots;
  BITGRAD_HD void operator()(int64_t i) const {
    const kernels::AttentionShape& s = args.shape;
    const int64_t key = i % s.keys, kv_head = i / s.keys % s.kv_heads, sample = i / s.keys / s.kv_heads;
    const int64_t k = s.of_k(sample, kv_head, key), out = s.of_gk(sample, kv_head, key);
    for (int64_t c = 0; c < s.dim; ++c) {
      if (args.gk != nullptr) args.gk[out + c] = 0;
      if (args.gv != nullptr) args.gv[out + c] = 0;
    }
    const int64_t group = s.group(), begin = key > s.first ? key - s.first : 0;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (int64_t row = begin; row < s.rows && s.start(sample, row) <= key; ++row) {
        const int64_t q = s.of_q(sample, head, row), y = s.of_y(sample, head, row);
        const AttentionPair pair(args, dots, q, k, y, s.of_row(sample, head, row), key);
        for (int64_t c = 0; c < s.dim; ++c) {
          if (args.gk != nullptr) args.gk[out + c] = args.gk[out + c] + pair.gs * args.q[q + c];
          if (args.gv != nullptr) args.gv[out + c] = args.gv[out + c] + pair.p * args.gy[y + c];
        }
      }
  }
};

// Sets bit 1 in flags if the start of a row is invalid (ops/attention.h).
struct FlagStarts {
  const int32_t* starts;
  int64_t rows, first;
  uint32_t* flags;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t row = i % rows, start = starts[i], before = row == 0 ? 0 : starts[i - 1];
    if (start < before || start > first + row) or_flag(flags, 1u);
  }
};

// Index: the sample.
struct DocumentStarts {
  int64_t rows, end;
  const int32_t* ids;  // either ids or wide_ids is nullptr
  const int64_t* wide_ids;
  int32_t* starts;
  BITGRAD_HD void operator()(int64_t sample) const {
    int64_t start = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = sample * rows + row;
      starts[i] = static_cast<int32_t>(start);
      if ((ids != nullptr ? ids[i] : wide_ids[i]) == end) start = row + 1;
    }
  }
};

// What a map reads and writes: fp32 or bf16 each, or fp64.
struct FloatPlaces {
  const void* x;
  void* y;
  bool bf16_x, bf16_y;
  BITGRAD_HD float load(int64_t i) const { return load_float(x, bf16_x, i); }
  BITGRAD_HD void store(int64_t i, float value) const { store_float(y, bf16_y, i, value); }
};
struct DoublePlaces {
  const double* x;
  double* y;
  BITGRAD_HD double load(int64_t i) const { return x[i]; }
  BITGRAD_HD void store(int64_t i, double value) const { y[i] = value; }
};

// Rotary positions: rotates one head of one row. Index: (sample * rows + row) * heads + head. `back`: the gradient,
// which is rotated in the opposite direction.
template <typename Places>
struct TurnedPairs {
  int64_t rows, heads, turned, dim, first;  // the first `turned` of `heads` are rotated, the others copied
  bool interleaved, back;
  const float* table;  // [position][dim]: cosines, sines
  Places at;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t half = dim / 2, step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
    if (i % heads >= turned) {
      for (int64_t c = 0; c < dim; ++c) at.store(i * dim + c, at.load(i * dim + c));
      return;
    }
    using T = decltype(at.load(0));
    const float* const cosines = table + (first + i / heads % rows) * dim;
    for (int64_t c = 0; c < half; ++c) {
      const T cosine = static_cast<T>(cosines[c]), sine = static_cast<T>(cosines[half + c]);
      const T turn = back ? -sine : sine;
      const T a = at.load(i * dim + c * step), b = at.load(i * dim + c * step + apart);
      at.store(i * dim + c * step, a * cosine - b * turn);
      at.store(i * dim + c * step + apart, b * cosine + a * turn);
    }
  }
};
struct RopeValues {
  TurnedPairs<FloatPlaces> pairs;
  BITGRAD_HD void operator()(int64_t i) const { pairs(i); }
};
struct RopeFp64 {
  TurnedPairs<DoublePlaces> pairs;
  BITGRAD_HD void operator()(int64_t i) const { pairs(i); }
};

}  // namespace bitgrad::maps
