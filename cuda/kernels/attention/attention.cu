// Family attention on the device: a thread per row of q, or per key for gk and gv, with the arithmetic of the CPU
// kernels (contract: kernels/attention.h).
#include "kernels/attention.h"

#include "bitgrad/base/math.h"
#include "bitgrad/base/memory.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/map/map_kernel.h"

namespace bitgrad::cuda {
namespace {

constexpr int kBlock = kAttentionBlock, kLanes = 16;

BITGRAD_DEVICE inline float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t c = 0; c < n; ++c) sum = sum + a[c] * b[c];
  return sum;
}

BITGRAD_DEVICE inline float scored(const AttentionShape& s, float sum) {
  return s.softcap > 0 ? s.capped(sum) : sum * s.scale;
}

// Index: (sample * heads + head) * rows + row.
struct Forward {
  AttentionArgs args;

  BITGRAD_DEVICE void operator()(int64_t i) const {
    const AttentionShape& s = args.shape;
    const int64_t row = i % s.rows, head = i / s.rows % s.heads, sample = i / s.rows / s.heads;
    const int64_t kv_head = head / (s.group()), seen = s.first + row + 1;
    const float* const q = args.q + s.of_q(sample, head, row);
    float* const y = args.y + s.of_y(sample, head, row);
    for (int64_t c = 0; c < s.dim; ++c) y[c] = 0;
    float top = -INFINITY, sum = 0;
    const int64_t start = s.start(sample, row);
    for (int64_t key = start / kBlock * kBlock; key < seen; key += kBlock) {
      const int count = static_cast<int>(seen - key < kBlock ? seen - key : kBlock);
      const int begin = static_cast<int>(start > key ? start - key : 0);
      float p[kBlock];
      const float factor = online(q, sample, kv_head, key, begin, count, p, top, sum);
      if (args.dropout.given())
        for (int j = begin; j < count; ++j)
          p[j] = args.dropout.dropped(p[j], AttentionDropout::element(s, sample, head, row, key + j));
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
  BITGRAD_DEVICE float online(const float* q, int64_t sample, int64_t kv_head, int64_t key, int begin, int count,
                              float* p, float& top, float& sum) const {
    float next = top;
    for (int j = begin; j < count; ++j) {
      p[j] = scored(args.shape, dot(q, args.k + args.shape.of_k(sample, kv_head, key + j), args.shape.dim));
      next = next < p[j] ? p[j] : next;
    }
    for (int j = 0; j < kBlock; ++j) p[j] = j >= begin && j < count ? math::exp(p[j] - next) : 0.0f;
    float lane[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      lane[l] = p[l];
      for (int j = kLanes + l; j < kBlock; j += kLanes) lane[l] = lane[l] + p[j];
    }
    for (int half = kLanes / 2; half >= 1; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
    const float factor = math::exp(top - next);
    sum = sum * factor + lane[0];
    top = next;
    return factor;
  }
};

// dots = sum gy * y. Index as in Forward.
struct Dots {
  AttentionBackwardArgs args;
  float* dots;
  BITGRAD_DEVICE void operator()(int64_t i) const {
    const AttentionShape& s = args.shape;
    const int64_t at = s.of_y(i / s.rows / s.heads, i / s.rows % s.heads, i % s.rows);
    dots[i] = dot(args.gy + at, args.y + at, s.dim);
  }
};

// p, including the dropout factor that multiplied the values, and the gradient of the score of one row and key. row:
// index as in Forward.
struct Pair {
  float p, gs;
  BITGRAD_DEVICE Pair(const AttentionBackwardArgs& args, const float* dots, int64_t q, int64_t k, int64_t y,
                      int64_t row, int64_t key) {
    const AttentionShape& s = args.shape;
    const uint64_t element = AttentionDropout::element(s, row, key);
    const float score = scored(s, dot(args.q + q, args.k + k, s.dim));
    p = math::exp(score - args.log_sum[row]);
    const float gp = args.dropout.dropped(dot(args.gy + y, args.v + k, s.dim), element);
    gs = (p * (gp - dots[row])) * (s.softcap > 0 ? s.cap_slope(score) : s.scale);
    p = args.dropout.dropped(p, element);
  }
};

// gq. Index as in Forward.
struct QueryGradient {
  AttentionBackwardArgs args;
  const float* dots;
  BITGRAD_DEVICE void operator()(int64_t i) const {
    const AttentionShape& s = args.shape;
    const int64_t row = i % s.rows, head = i / s.rows % s.heads, sample = i / s.rows / s.heads;
    const int64_t kv_head = head / (s.group()), q = s.of_q(sample, head, row), y = s.of_y(sample, head, row);
    for (int64_t c = 0; c < s.dim; ++c) args.gq[q + c] = 0;
    for (int64_t key = s.start(sample, row); key <= s.first + row; ++key) {
      const int64_t k = s.of_k(sample, kv_head, key);
      const Pair pair(args, dots, q, k, y, i, key);
      for (int64_t c = 0; c < s.dim; ++c) args.gq[q + c] = args.gq[q + c] + pair.gs * args.k[k + c];
    }
  }
};

// gk and gv. Index: (sample * kv_heads + head) * keys + key.
struct KeyGradient {
  AttentionBackwardArgs args;
  const float* dots;
  BITGRAD_DEVICE void operator()(int64_t i) const {
    const AttentionShape& s = args.shape;
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
        const Pair pair(args, dots, q, k, y, s.of_row(sample, head, row), key);
        for (int64_t c = 0; c < s.dim; ++c) {
          if (args.gk != nullptr) args.gk[out + c] = args.gk[out + c] + pair.gs * args.q[q + c];
          if (args.gv != nullptr) args.gv[out + c] = args.gv[out + c] + pair.p * args.gy[y + c];
        }
      }
  }
};

}  // namespace

void attention_cuda(const AttentionArgs& args) {
  const AttentionShape& s = args.shape;
  launch_each(Forward{args}, s.samples * s.heads * s.rows, "attention_cuda");
}

void attention_backward_cuda(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  const int64_t rows = s.samples * s.heads * s.rows;
  const Workspace space(rows * static_cast<int64_t>(sizeof(float)));
  float* const dots = space.as<float>();
  constexpr const char* kName = "attention_backward_cuda";
  launch_each(Dots{args, dots}, rows, kName);
  if (args.gq != nullptr) launch_each(QueryGradient{args, dots}, rows, kName);
  if (args.gk != nullptr || args.gv != nullptr)
    launch_each(KeyGradient{args, dots}, s.samples * s.kv_heads * s.keys, kName);
}

}  // namespace bitgrad::cuda
