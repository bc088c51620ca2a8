// Maps: copy rows of keys and values into a cache and out of it, in blocks of 32 values of a row.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "kernels/map/numbers.h"
#include "nn/map/list.h"

namespace bitgrad::maps {
namespace kv {

inline constexpr int64_t kBlock = 32;
BITGRAD_HD inline int64_t blocks_of(int64_t features) { return (features + kBlock - 1) / kBlock; }
BITGRAD_HD inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// New rows: x [samples, t, step] goes to rows first, first + 1, .. of each sample. Index: row * blocks + block.
struct Rows {
  const float* x;
  int64_t step, t, positions, first, features;

  BITGRAD_HD int64_t row_of(int64_t i) const { return i / blocks_of(features); }
  BITGRAD_HD int64_t begin_of(int64_t i) const { return i % blocks_of(features) * kBlock; }
  BITGRAD_HD int64_t count_of(int64_t i) const { return smaller(kBlock, features - begin_of(i)); }
  BITGRAD_HD const float* from(int64_t i) const { return x + row_of(i) * step + begin_of(i); }
  BITGRAD_HD int64_t to_row(int64_t i) const { return row_of(i) / t * positions + first + row_of(i) % t; }
  BITGRAD_HD int64_t to(int64_t i) const { return to_row(i) * features + begin_of(i); }
  BITGRAD_HD int64_t to_block(int64_t i) const { return to_row(i) * blocks_of(features) + i % blocks_of(features); }
};

// Reads rows 0 .. rows - 1 of each sample of a cache into `out` [samples, rows, features]. Index as above.
struct Copied {
  int64_t rows, positions, features;
  float* out;

  BITGRAD_HD int64_t begin_of(int64_t i) const { return i % blocks_of(features) * kBlock; }
  BITGRAD_HD int64_t count_of(int64_t i) const { return smaller(kBlock, features - begin_of(i)); }
  BITGRAD_HD int64_t from_row(int64_t i) const {
    const int64_t row = i / blocks_of(features);
    return row / rows * positions + row % rows;
  }
  BITGRAD_HD int64_t from(int64_t i) const { return from_row(i) * features + begin_of(i); }
  BITGRAD_HD int64_t from_block(int64_t i) const { return from_row(i) * blocks_of(features) + i % blocks_of(features); }
  BITGRAD_HD float* to(int64_t i) const { return out + i / blocks_of(features) * features + begin_of(i); }
};

// Conversion to and from fp16 bits, for values that fp16 represents exactly: finite, not negative.
BITGRAD_HD inline uint16_t half_bits(float x) {
  if (x < 0x1p-14f) return static_cast<uint16_t>(x * 0x1p24f);
  return static_cast<uint16_t>((q::bits_of(x) >> 13) - (112u << 10));
}
BITGRAD_HD inline float half_value(uint16_t bits) {
  if (bits < 1024) return static_cast<float>(bits) * 0x1p-24f;
  return q::of_bits((static_cast<uint32_t>(bits) + (112u << 10)) << 13);
}

}  // namespace kv

struct KvStoreFp32 {
  kv::Rows rows;
  float* out;
  BITGRAD_HD void operator()(int64_t i) const {
    const float* const x = rows.from(i);
    float* const y = out + rows.to(i);
    for (int64_t c = 0; c < rows.count_of(i); ++c) y[c] = x[c];
  }
};

// Columns of transposed blocks of 64 rows: out [samples, blocks, features, 64], or `narrow` in bf16. Index: sample *
// blocks of features + block, with all new rows.
struct KvStoreColumns {
  kv::Rows rows;
  int64_t blocks;
  float* out;
  uint16_t* narrow;
  BITGRAD_HD void operator()(int64_t i) const {
    constexpr int64_t kSide = 64;
    const int64_t sample = i / kv::blocks_of(rows.features), begin = rows.begin_of(i), n = rows.count_of(i);
    for (int64_t r = 0; r < rows.t; ++r) {
      const int64_t at = rows.first + r;
      const float* const x = rows.x + (sample * rows.t + r) * rows.step + begin;
      const int64_t to = ((sample * blocks + at / kSide) * rows.features + begin) * kSide + at % kSide;
      if (narrow != nullptr) {
        for (int64_t c = 0; c < n; ++c) narrow[to + c * kSide] = bf16_from_float(x[c]);
      } else {
        for (int64_t c = 0; c < n; ++c) out[to + c * kSide] = x[c];
      }
    }
  }
};

// Rows of blocks of 64, head by head: out [samples, blocks, heads, 64, dim], or `narrow` in bf16. Index as of
// KvStoreFp32.
struct KvStoreHeads {
  kv::Rows rows;
  int64_t blocks, dim;
  float* out;
  uint16_t* narrow;
  BITGRAD_HD void operator()(int64_t i) const {
    constexpr int64_t kSide = 64;
    const int64_t row = rows.row_of(i), sample = row / rows.t, at = rows.first + row % rows.t;
    const int64_t begin = rows.begin_of(i), end = begin + rows.count_of(i);
    const float* const x = rows.from(i);
    const int64_t block = (sample * blocks + at / kSide) * rows.features * kSide;
    for (int64_t c = begin, run; c < end; c += run) {
      const int64_t of_head = c % dim;
      const int64_t to = block + (c - of_head) * kSide + at % kSide * dim + of_head;
      run = kv::smaller(dim - of_head, end - c);
      if (narrow != nullptr) {
        for (int64_t j = 0; j < run; ++j) narrow[to + j] = bf16_from_float(x[c - begin + j]);
      } else {
        for (int64_t j = 0; j < run; ++j) out[to + j] = x[c - begin + j];
      }
    }
  }
};

struct KvStoreBf16 {
  kv::Rows rows;
  uint16_t* out;
  BITGRAD_HD void operator()(int64_t i) const {
    const float* const x = rows.from(i);
    uint16_t* const y = out + rows.to(i);
    for (int64_t c = 0; c < rows.count_of(i); ++c) y[c] = bf16_from_float(x[c]);
  }
};

// d = max abs x / 127; codes rint(x * (1/d)), all 0 if d is 0; the scale is fp16(d). (ggml, Q8_0.)
struct KvStoreInt8 {
  kv::Rows rows;
  int8_t* codes;
  uint16_t* scales;
  uint32_t* flags;
  BITGRAD_HD void operator()(int64_t i) const {
    const float* const x = rows.from(i);
    const int64_t n = rows.count_of(i);
    float most = 0;
    bool sound = true;
    for (int64_t c = 0; c < n; ++c) {
      sound = sound && q::finite(x[c]);
      most = q::larger(most, q::magnitude(x[c]));
    }
    const float d = most / 127.0f, stored = q::round_fp16(d);
    sound = sound && q::finite(stored);
    if (!sound) or_flag(flags, kFlagNonFinite);
    const float inverse = sound && d > 0 ? 1.0f / d : 0.0f;
    int8_t* const y = codes + rows.to(i);
    for (int64_t c = 0; c < n; ++c)
      y[c] = sound ? static_cast<int8_t>(q::clamped(rintf(x[c] * inverse), -127.0f, 127.0f)) : int8_t{0};
    scales[rows.to_block(i)] = sound ? kv::half_bits(stored) : uint16_t{0};
  }
};

struct KvLoadBf16 {
  kv::Copied copied;
  const uint16_t* x;
  BITGRAD_HD void operator()(int64_t i) const {
    const uint16_t* const from = x + copied.from(i);
    float* const y = copied.to(i);
    for (int64_t c = 0; c < copied.count_of(i); ++c) y[c] = bf16_to_float(from[c]);
  }
};

struct KvLoadInt8 {
  kv::Copied copied;
  const int8_t* codes;
  const uint16_t* scales;
  BITGRAD_HD void operator()(int64_t i) const {
    const int8_t* const from = codes + copied.from(i);
    const float scale = kv::half_value(scales[copied.from_block(i)]);
    float* const y = copied.to(i);
    for (int64_t c = 0; c < copied.count_of(i); ++c) y[c] = static_cast<float>(from[c]) * scale;
  }
};

}  // namespace bitgrad::maps
