// Gathers rows of a table by id, and sums the gradients for each row. docs/numerics.md sections 4 and 5.
#pragma once

#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/bf16.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// Ids [n, t], int32 or int64, indexed by flat position r * t + c.
struct IdsView {
  const char* data;
  int64_t stride;  // bytes between rows
  int64_t cols;
  bool wide;

  BITGRAD_HD int64_t at(int64_t position) const {
    const int64_t r = position / cols, c = position - r * cols;
    const char* const row = data + r * stride;
    return wide ? reinterpret_cast<const int64_t*>(row)[c] : reinterpret_cast<const int32_t*>(row)[c];
  }
};

// Sets bit 1 in flags if an id is outside [0, rows). Index: position.
struct FlagIds {
  IdsView ids;
  int64_t rows;
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t p) const {
    const int64_t id = ids.at(p);
    if (id < 0 || id >= rows) or_flag(flags, 1u);
  }
};

// out[p] = in[id of p / group], rows of `words` 32-bit words; ids outside the table give zeros. Index: p * words +
// word.
struct GatherRows {
  typedef uint32_t __attribute__((__may_alias__)) Word;
  IdsView ids;
  int64_t rows;   // valid ids are below this
  int64_t group;  // table rows that share a row of `in`
  const Word* in;
  int64_t step;  // words between rows of `in`
  int64_t words;
  Word* out;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t p = i / words, id = ids.at(p);
    out[i] = id >= 0 && id < rows ? in[id / group * step + (i - p * words)] : 0u;
  }
};

// Keys id * 2^32 + position, so that after sorting, the positions of a row are adjacent and ascending. Entries up to
// `padded` are filled with the largest key. Index: 0 .. number of keys, a power of 2.
struct IdKeys {
  IdsView ids;
  int64_t count, rows;
  uint64_t* keys;

  BITGRAD_HD void operator()(int64_t p) const {
    const int64_t id = p < count ? ids.at(p) : -1;
    keys[p] = id >= 0 && id < rows ? (static_cast<uint64_t>(id) << 32) | static_cast<uint64_t>(p) : ~uint64_t{0};
  }
};

// One step of an ascending bitonic sort (Batcher 1968): pairs at `distance` within runs of `run` keys. Index: pair.
struct SortStep {
  uint64_t* keys;
  int64_t distance, run;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t a = i / distance * distance * 2 + i % distance, b = a + distance;
    const bool ascending = (a & run) == 0;
    const uint64_t x = keys[a], y = keys[b];
    if ((x > y) != ascending) return;
    keys[a] = y;
    keys[b] = x;
  }
};

// first[r]: index of the first sorted key whose row is at least r. Index: 0 .. rows.
struct FirstOfRow {
  const uint64_t* keys;
  int64_t count;
  int64_t* first;

  BITGRAD_HD void operator()(int64_t r) const {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if ((keys[middle] >> 32) < static_cast<uint64_t>(r))
        low = middle + 1;
      else
        high = middle;
    }
    first[r] = low;
  }
};

// Row r of the gradient: +0 plus the parts of gy in ascending order of position; written, added, or rounded to bf16.
// Index: r * d + column.
struct EmbeddingGradient {
  const uint64_t* keys;  // sorted
  const int64_t* first;
  const float* gy;
  int64_t d;
  float* out;  // or the bf16 output below
  uint16_t* out_bf16;
  bool accumulate, stochastic;
  RandomStream draws;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / d, j = i - r * d, begin = first[r], end = first[r + 1];
    if (begin == end && accumulate) return;
    float sum = 0;
    for (int64_t q = begin; q < end; ++q) sum += gy[static_cast<int64_t>(keys[q] & 0xFFFFFFFFu) * d + j];
    if (out != nullptr) {
      out[i] = accumulate ? out[i] + sum : sum;
      return;
    }
    const float full = accumulate ? bf16_to_float(out_bf16[i]) + sum : sum;
    out_bf16[i] =
        stochastic ? bf16_from_float_stochastic(full, draws.bits16(static_cast<uint64_t>(i))) : bf16_from_float(full);
  }
};

}  // namespace bitgrad::maps
