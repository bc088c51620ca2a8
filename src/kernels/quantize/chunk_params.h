// The quantization parameters of a chunk of a row, in the form that the loops read.
#pragma once

#include <algorithm>

#include "kernels/quantize/loops.h"

namespace bitgrad::kernels::quantize_loops {

// The same for the fast path of the loops; returns false if the elements are not laid out as GroupParams requires.
inline bool group_params(const ScaleMap& map, int64_t r, int64_t c, int64_t n, GroupParams& p) {
  static constexpr float kOne = 1.0f;
  const bool one = map.col_step == 0 || c / map.col_group == (c + n - 1) / map.col_group;
  if (!one && (map.col_step != 1 || map.scale == nullptr)) return false;
  const int64_t at = map.index(r, c);
  p.group = one ? n : map.col_group;
  p.left = one ? n : map.col_group - c % map.col_group;
  p.scale = map.scale == nullptr ? &kOne : map.scale + at;
  p.zero = map.zero == nullptr ? nullptr : map.zero + at;
  p.offset = map.offset == nullptr ? nullptr : map.offset + at;
  return true;
}

// Buffers for parameters that vary within a chunk.
class ChunkParamReader {
 public:
  // inverse: provide 1/s instead of s, for rules that multiply by it; computed once for elements that share a scale.
  ChunkParamReader(const QuantizeLoops& loops, const ScaleMap& map, bool inverse = false)
      : loops_(loops), map_(map), inverse_(inverse) {}

  // Parameters of elements (r, c) .. (r, c + n - 1), n <= kChunk. Valid until the next call.
  ChunkParams read(int64_t r, int64_t c, int64_t n) {
    ChunkParams p;
    const int64_t row = map_.index(r, 0);
    p.per_element = map_.col_step != 0 && c / map_.col_group != (c + n - 1) / map_.col_group;
    if (!p.per_element) {
      const int64_t at = row + (c / map_.col_group) * map_.col_step;
      p.scale = map_.scale == nullptr ? &kOne : map_.scale + at;
      p.zero = map_.zero == nullptr ? &kZeroPoint : map_.zero + at;
      p.offset = map_.offset == nullptr ? &kNothing : map_.offset + at;
      return p;
    }
    if (!ready_) fill_absent();
    p.scale = inverse_ ? inverses(row, c, n) : spread(map_.scale, row, c, n, scale_);
    p.zero = spread(map_.zero, row, c, n, zero_);
    p.offset = spread(map_.offset, row, c, n, offset_);
    return p;
  }

 private:
  void fill_absent() {
    if (map_.scale == nullptr) std::fill(scale_, scale_ + kChunk, kOne);
    if (map_.zero == nullptr) std::fill(zero_, zero_ + kChunk, kZeroPoint);
    if (map_.offset == nullptr) std::fill(offset_, offset_ + kChunk, kNothing);
    ready_ = true;
  }

  // If a parameter is absent, keeps what fill_absent wrote.
  template <typename T>
  const T* spread(const T* from, int64_t row, int64_t c, int64_t n, T* buffer) const {
    if (from == nullptr) return buffer;
    if (map_.col_group == 1 && map_.col_step == 1) return from + row + c;
    const int64_t group = map_.col_group;
    loops_.spread(n, group - c % group, group, map_.col_step, from + row + c / group * map_.col_step, buffer);
    return buffer;
  }

  const float* inverses(int64_t row, int64_t c, int64_t n) {
    if (map_.scale == nullptr) return scale_;
    const int64_t group = map_.col_group, first = c / group, count = (c + n - 1) / group - first + 1;
    for (int64_t i = 0; i < count; ++i) inverses_[i] = 1.0f / map_.scale[row + (first + i) * map_.col_step];
    if (group == 1) return inverses_;
    loops_.spread(n, group - c % group, group, 1, inverses_, scale_);
    return scale_;
  }

  static constexpr float kOne = 1.0f, kNothing = 0.0f;
  static constexpr int32_t kZeroPoint = 0;
  const QuantizeLoops& loops_;
  const ScaleMap& map_;
  bool inverse_, ready_ = false;
  float scale_[kChunk], inverses_[kChunk], offset_[kChunk];
  int32_t zero_[kChunk];
};

}  // namespace bitgrad::kernels::quantize_loops
