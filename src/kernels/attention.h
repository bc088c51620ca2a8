// Family attention: causal softmax(q k^T * scale) v per head, without materializing the scores. docs/numerics.md
// section 10, "Attention". Keys are processed in blocks of 64 at absolute positions, in ascending order; each row of q
// carries the running maximum, sum and weighted values (online softmax: Milakov and Gimelshein 2018, arXiv 1805.02867,
// algorithm 3; tiled: Dao et al. 2022, arXiv 2205.14135, algorithms 1 and 4). Backward recomputes the probabilities
// from the logarithms of the sums.
//
// fp32; each operation is rounded once; exp and log are those of base/math.h. A row of y depends only on its row of q
// and on the keys and values up to its position, whatever the number of rows, the ISA, the threads or the device
// (cuda/kernels/attention/).
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "bitgrad/base/math.h"
#include "bitgrad/base/rng.h"

namespace bitgrad::kernels {

inline constexpr int64_t kAttentionBlock = 64;  // keys

struct AttentionShape {
  int64_t samples = 0, heads = 1, kv_heads = 1;  // kv_heads divides heads; the heads of a group are adjacent
  int64_t rows = 0, keys = 0;                    // per sample
  int64_t dim = 0;                               // per head
  int64_t first = 0;    // position of row 0; row i sees keys 0 .. first + i. first + rows <= keys
  int64_t kv_rows = 0;  // rows in memory between samples of k and v; 0: keys
  // Floats between rows: q_step of q and gq, kv_step of k, v, gk and gv; 0: dense, heads * dim or kv_heads * dim.
  int64_t q_step = 0, kv_step = 0;
  float scale = 1;
  // Forward on the CPU: k and v are in blocks of 64 keys, [samples, key_blocks, kv_heads, dim, 64], k as the scores
  // read it, and [samples, key_blocks, kv_heads, 64, dim]. 0: both in rows.
  int64_t key_blocks = 0;
  float softcap = 0;  // above 0: a scaled score s becomes softcap * tanh(s / softcap)
  // Optional, [samples, rows], ascending within a sample: row i sees only keys starts[i] .. first + i, at least one
  // (documents packed into one sequence). nullptr: all from key 0. Blocks without such keys do not affect the row.
  const int32_t* starts = nullptr;

  // A score and its slope over the sum q k, where there is a cap.
  BITGRAD_HD float capped(float sum) const { return softcap * math::tanh(sum * scale / softcap); }
  BITGRAD_HD float cap_slope(float score) const {
    const float y = score / softcap;
    return (1.0f - y * y) * scale;
  }

  BITGRAD_HD int64_t start(int64_t sample, int64_t row) const {
    return starts == nullptr ? 0 : starts[sample * rows + row];
  }
  BITGRAD_HD int64_t group() const { return heads / kv_heads; }
  // Offset in floats of the given head of a row or key. of_row: index into [samples, heads, rows].
  BITGRAD_HD int64_t of_q(int64_t sample, int64_t head, int64_t row) const {
    return (sample * rows + row) * (q_step == 0 ? heads * dim : q_step) + head * dim;
  }
  BITGRAD_HD int64_t of_y(int64_t sample, int64_t head, int64_t row) const {
    return ((sample * rows + row) * heads + head) * dim;
  }
  BITGRAD_HD int64_t of_k(int64_t sample, int64_t kv_head, int64_t key) const {
    return (sample * (kv_rows == 0 ? keys : kv_rows) + key) * (kv_step == 0 ? kv_heads * dim : kv_step) + kv_head * dim;
  }
  // Where the 64 keys and values of a block begin in k and v of blocks.
  BITGRAD_HD int64_t of_block(int64_t sample, int64_t kv_head, int64_t block) const {
    return ((sample * key_blocks + block) * kv_heads + kv_head) * dim * kAttentionBlock;
  }
  BITGRAD_HD int64_t of_gk(int64_t sample, int64_t kv_head, int64_t key) const {
    return (sample * keys + key) * (kv_step == 0 ? kv_heads * dim : kv_step) + kv_head * dim;
  }
  BITGRAD_HD int64_t of_row(int64_t sample, int64_t head, int64_t row) const {
    return (sample * heads + head) * rows + row;
  }
};

// Dropout of the probabilities p in training: element ((sample * heads + head) * rows + row) * keys + key is multiplied
// by factor where bits16(element) >= threshold, else 0. The softmax denominator is the sum of all p, before dropout.
struct AttentionDropout {
  RandomStream stream = {};
  uint32_t threshold = 0;  // rint(65536 * probability); 0: no dropout
  float factor = 1;        // 1 / (1 - probability)

  BITGRAD_HD bool given() const { return threshold > 0; }
  BITGRAD_HD static uint64_t element(const AttentionShape& s, int64_t of_row, int64_t key) {
    return static_cast<uint64_t>(of_row * s.keys + key);
  }
  BITGRAD_HD static uint64_t element(const AttentionShape& s, int64_t sample, int64_t head, int64_t row, int64_t key) {
    return element(s, s.of_row(sample, head, row), key);
  }
  // Applies dropout to p or to its gradient.
  BITGRAD_HD float dropped(float p, uint64_t element) const {
    return !given() ? p : stream.bits16(element) >= threshold ? p * factor : 0.0f;
  }
};

struct AttentionArgs {
  AttentionShape shape;
  const float* q = nullptr;                // [samples, rows, heads, dim]
  const float *k = nullptr, *v = nullptr;  // [samples, kv_rows, kv_heads, dim], or blocks
  float* y = nullptr;                      // [samples, rows, heads, dim], dense
  float* log_sum = nullptr;                // optional, [samples, heads, rows]: maximum + log(sum)
  AttentionDropout dropout = {};
  // Blocks of bf16 numbers, which are widened where they are read; k and v are null then.
  const uint16_t *k_bf16 = nullptr, *v_bf16 = nullptr;
};
void attention(const AttentionArgs& args);

// gq is laid out as q, gk and gv as k with `keys` rows per sample; each is optional. gy is laid out as y.
struct AttentionBackwardArgs {
  AttentionShape shape;
  const float *q = nullptr, *k = nullptr, *v = nullptr, *y = nullptr, *log_sum = nullptr, *gy = nullptr;
  float *gq = nullptr, *gk = nullptr, *gv = nullptr;
  AttentionDropout dropout = {};  // as in forward
};
void attention_backward(const AttentionBackwardArgs& args);

}  // namespace bitgrad::kernels
