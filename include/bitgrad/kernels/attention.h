// Family attention: causal softmax(q k^T * scale) v for each head, without the matrix of scores. docs/numerics.md
// section 10, "Attention". Blocks of 64 keys at absolute positions in ascending order; a row of q keeps the maximum,
// the sum and the weighted values of the blocks so far (online softmax: Milakov and Gimelshein 2018, arXiv 1805.02867,
// algorithm 3; with tiles: Dao et al. 2022, arXiv 2205.14135, algorithms 1 and 4). Backward makes the probabilities
// again from the logarithms of the sums.
//
// fp32, each operation rounded once, exp and log our own: a row of y depends on its row of q and on the keys and values
// up to its position alone, whatever the number of rows, the ISA, the threads or the device. On the CPU; devices run
// maps (src/ops/map/attention.h).
#pragma once

#include <cstdint>

#include "bitgrad/base/host_device.h"
#include "bitgrad/base/rng.h"

namespace bitgrad::kernels {

inline constexpr int64_t kAttentionBlock = 64;  // keys

struct AttentionShape {
  int64_t samples = 0, heads = 1, kv_heads = 1;  // kv_heads divides heads; heads of a group are neighbours
  int64_t rows = 0, keys = 0;                    // of a sample
  int64_t dim = 0;                               // of a head
  int64_t first = 0;                // position of row 0; row i sees keys 0 .. first + i. first + rows <= keys
  int64_t kv_rows = 0;              // rows of memory between samples of k and v; 0: keys
  int64_t q_step = 0, kv_step = 0;  // floats between rows of q and gq, and of k, v, gk and gv; 0: those of its heads
  float scale = 1;
  // [samples, rows], ascending within a sample: row i sees keys starts[i] .. first + i, at least one (documents that
  // are packed into one sequence); nullptr: from 0 on. Blocks of which a row sees no key leave no trace in its numbers.
  const int32_t* starts = nullptr;

  BITGRAD_HD int64_t start(int64_t sample, int64_t row) const {
    return starts == nullptr ? 0 : starts[sample * rows + row];
  }
  BITGRAD_HD int64_t group() const { return heads / kv_heads; }
  // Floats from a pointer to the numbers of a head of a row.
  BITGRAD_HD int64_t of_q(int64_t sample, int64_t head, int64_t row) const {
    return (sample * rows + row) * (q_step == 0 ? heads * dim : q_step) + head * dim;
  }
  BITGRAD_HD int64_t of_y(int64_t sample, int64_t head, int64_t row) const {
    return ((sample * rows + row) * heads + head) * dim;
  }
  BITGRAD_HD int64_t of_k(int64_t sample, int64_t kv_head, int64_t key) const {
    return (sample * (kv_rows == 0 ? keys : kv_rows) + key) * (kv_step == 0 ? kv_heads * dim : kv_step) + kv_head * dim;
  }
  BITGRAD_HD int64_t of_gk(int64_t sample, int64_t kv_head, int64_t key) const {
    return (sample * keys + key) * (kv_step == 0 ? kv_heads * dim : kv_step) + kv_head * dim;
  }
  BITGRAD_HD int64_t of_row(int64_t sample, int64_t head, int64_t row) const {
    return (sample * heads + head) * rows + row;
  }
};

// Of probabilities p, in training: element ((sample * heads + head) * rows + row) * keys + key becomes p * factor where
// bits16(element) >= threshold, else 0. The sum that divides a row is that of all p.
struct AttentionDropout {
  RandomStream stream = {};
  uint32_t threshold = 0;  // rint(65536 * probability); 0: p stays
  float factor = 1;        // 1 / (1 - probability)

  BITGRAD_HD bool given() const { return threshold > 0; }
  BITGRAD_HD static uint64_t element(const AttentionShape& s, int64_t of_row, int64_t key) {
    return static_cast<uint64_t>(of_row * s.keys + key);
  }
  BITGRAD_HD static uint64_t element(const AttentionShape& s, int64_t sample, int64_t head, int64_t row, int64_t key) {
    return element(s, s.of_row(sample, head, row), key);
  }
  // What p, or its gradient, becomes.
  BITGRAD_HD float dropped(float p, uint64_t element) const {
    return !given() ? p : stream.bits16(element) >= threshold ? p * factor : 0.0f;
  }
};

struct AttentionArgs {
  AttentionShape shape;
  const float* q = nullptr;                // [samples, rows, heads, dim]
  const float *k = nullptr, *v = nullptr;  // [samples, kv_rows, kv_heads, dim]
  float* y = nullptr;                      // [samples, rows, heads, dim], dense
  float* log_sum = nullptr;                // optional, [samples, heads, rows]: maximum + log of the sum
  AttentionDropout dropout = {};
};
void attention(const AttentionArgs& args);

// gq: as q; gk and gv: as k, samples of `keys` rows; each may be absent. gy: as y.
struct AttentionBackwardArgs {
  AttentionShape shape;
  const float *q = nullptr, *k = nullptr, *v = nullptr, *y = nullptr, *log_sum = nullptr, *gy = nullptr;
  float *gq = nullptr, *gk = nullptr, *gv = nullptr;
  AttentionDropout dropout = {};  // that of forward
};
void attention_backward(const AttentionBackwardArgs& args);

}  // namespace bitgrad::kernels
