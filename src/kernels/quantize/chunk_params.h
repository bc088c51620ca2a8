// The quantization parameters of a chunk of a row, as the loops read them.
#pragma once

#include <algorithm>

#include "kernels/quantize/loops.h"

namespace bitgrad::quantize_loops {

// Buffers for parameters that differ within a chunk.
class ChunkParamReader {
 public:
  explicit ChunkParamReader(const ScaleMap& map) : map_(map) {}

  // Parameters of the elements (r, c) .. (r, c + n - 1), n <= kChunk. Valid until the next call.
  ChunkParams read(int64_t r, int64_t c, int64_t n) {
    ChunkParams p;
    const int64_t row = map_.index(r, 0);
    p.each = map_.col_step != 0 && c / map_.col_group != (c + n - 1) / map_.col_group;
    if (!p.each) {
      const int64_t at = row + (c / map_.col_group) * map_.col_step;
      p.scale = map_.scale == nullptr ? &kOne : map_.scale + at;
      p.zero = map_.zero == nullptr ? &kZeroPoint : map_.zero + at;
      p.offset = map_.offset == nullptr ? &kNothing : map_.offset + at;
      return p;
    }
    p.scale = fill(map_.scale, row, c, n, 1.0f, scale_);
    p.zero = fill(map_.zero, row, c, n, 0, zero_);
    p.offset = fill(map_.offset, row, c, n, 0.0f, offset_);
    return p;
  }

 private:
  template <typename T>
  const T* fill(const T* from, int64_t row, int64_t c, int64_t n, T absent, T* buffer) const {
    if (from == nullptr) {
      std::fill(buffer, buffer + n, absent);
      return buffer;
    }
    if (map_.col_group == 1 && map_.col_step == 1) return from + row + c;
    for (int64_t i = 0; i < n;) {
      const int64_t group = (c + i) / map_.col_group;
      const int64_t end = std::min(n, (group + 1) * map_.col_group - c);
      std::fill(buffer + i, buffer + end, from[row + group * map_.col_step]);
      i = end;
    }
    return buffer;
  }

  static constexpr float kOne = 1.0f, kNothing = 0.0f;
  static constexpr int32_t kZeroPoint = 0;
  const ScaleMap& map_;
  float scale_[kChunk], offset_[kChunk];
  int32_t zero_[kChunk];
};

}  // namespace bitgrad::quantize_loops
