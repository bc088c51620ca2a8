// Shared by the forward and backward of family attention: where heads lie in memory, and packing their blocks as
// operands.
#pragma once

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "kernels/attention.h"
#include "kernels/attention/loops.h"

namespace bitgrad::kernels::attention_loops {

inline constexpr int64_t kTile = 64;  // rows of q that are processed together
inline constexpr int64_t kTileScores = kTile * kAttentionBlock;

inline int64_t floats(int64_t n) { return n * static_cast<int64_t>(sizeof(float)); }
inline int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// The rows of one head in memory.
template <typename T>
struct Rows {
  T* data = nullptr;
  int64_t step = 0;  // floats between rows
  T* operator[](int64_t i) const { return data + i * step; }
};

// Shapes and offsets that a task needs.
class Heads {
 public:
  explicit Heads(const AttentionShape& shape) : s_(shape), wide_(padded(shape.dim)) {}
  template <typename T>
  Rows<T> of_q(T* data, int64_t sample, int64_t head) const {
    return {data + s_.of_q(sample, head, 0), s_.q_step == 0 ? s_.heads * s_.dim : s_.q_step};
  }
  template <typename T>
  Rows<T> of_y(T* data, int64_t sample, int64_t head) const {
    return {data + s_.of_y(sample, head, 0), s_.heads * s_.dim};
  }
  template <typename T>
  Rows<T> of_k(T* data, int64_t sample, int64_t kv_head) const {
    return {data + s_.of_k(sample, kv_head, 0), kv_step()};
  }
  Rows<float> of_gk(float* data, int64_t sample, int64_t kv_head) const {
    return {data + s_.of_gk(sample, kv_head, 0), kv_step()};
  }
  int64_t wide() const { return wide_; }  // dim, padded to whole vectors
  const AttentionShape& shape() const { return s_; }
  // The first row that sees `key`, assuming that no row starts after it.
  int64_t first_row(int64_t key) const { return std::max<int64_t>(0, key - s_.first); }
  // One past the last row of `sample` that sees any key below `key_end`.
  int64_t end_row(int64_t sample, int64_t key_end) const {
    if (s_.starts == nullptr) return s_.rows;
    const int32_t* const starts = s_.starts + sample * s_.rows;
    return std::lower_bound(starts, starts + s_.rows, key_end) - starts;
  }
  // Offset, within the block that begins at `key`, of the first key that row i of `sample` sees.
  int64_t unseen(int64_t sample, int64_t i, int64_t key) const {
    return std::max<int64_t>(0, s_.start(sample, i) - key);
  }
  // Number of keys from `key` on that row i sees: in all, and within the block that begins at `key`.
  int64_t all_seen(int64_t i, int64_t key) const { return s_.first + i + 1 - key; }
  int64_t seen(int64_t i, int64_t key) const { return std::min(kAttentionBlock, all_seen(i, key)); }

 private:
  int64_t kv_step() const { return s_.kv_step == 0 ? s_.kv_heads * s_.dim : s_.kv_step; }
  const AttentionShape& s_;
  const int64_t wide_;
};

// Applies dropout to values [begin, count) of a block, whose element numbers start at `first`: each is scaled or set to
// 0.
inline void drop(const AttentionDropout& dropout, uint64_t first, int64_t begin, int64_t count, float* numbers) {
  uint16_t draws[kAttentionBlock];
  dropout.stream.fill_bits16(first + static_cast<uint64_t>(begin), count - begin, draws);
  for (int64_t j = begin; j < count; ++j)
    numbers[j] = draws[j - begin] >= dropout.threshold ? numbers[j] * dropout.factor : 0.0f;
}

// Packs rows [begin, end) as [row][wide], with zeros beyond dim.
inline void pack_rows(const Heads& heads, const Rows<const float>& from, int64_t begin, int64_t end, float* to) {
  const int64_t dim = heads.shape().dim, wide = heads.wide();
  for (int64_t i = begin; i < end; ++i, to += wide) {
    std::copy_n(from[i], dim, to);
    std::fill(to + dim, to + wide, 0.0f);
  }
}

// Packs a block of rows from `begin` on as [dim][64], with zeros in columns that have no row.
inline void pack_columns(const Heads& heads, const Rows<const float>& from, int64_t begin, int64_t end, float* to) {
  const int64_t dim = heads.shape().dim, count = end - begin;
  loops().transpose(count, dim, from[begin], from.step, to, kAttentionBlock);
  for (int64_t c = 0; c < dim && count < kAttentionBlock; ++c)
    std::fill(to + c * kAttentionBlock + count, to + (c + 1) * kAttentionBlock, 0.0f);
}

// scores[r] = x[begin + r] columns for `rows` rows, over the columns that each row of the block from `key` on sees.
// narrow: the columns in bf16, in place of `columns`.
inline void score(const Heads& heads, const Rows<const float>& x, int64_t begin, int64_t rows, int64_t key,
                  const float* columns, float* scores, const uint16_t* narrow = nullptr) {
  MultiplyAdd call;
  call.rows = rows;
  call.cols = kAttentionBlock;
  call.inner = heads.shape().dim;
  call.x = x[begin];
  call.x_row = x.step;
  call.t = columns;
  call.t_bf16 = narrow;
  call.ldt = kAttentionBlock;
  call.y = scores;
  call.ldy = kAttentionBlock;
  call.col_ends = heads.all_seen(begin, key);
  loops().multiply_add(call);
}

}  // namespace bitgrad::kernels::attention_loops
