// What attention does besides its kernels (kernels/attention.h): starts of documents, rotary positions.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "kernels/map/pointwise.h"
#include "ops/map/list.h"

namespace bitgrad::maps {
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

// The first key that each row sees of its document and its window. Index: sample * rows + row.
struct WindowStarts {
  int64_t rows, first, window;
  const int32_t* documents;  // starts of documents; nullptr: all from 0 on
  int32_t* starts;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t begin = first + i % rows - window + 1, document = documents == nullptr ? 0 : documents[i];
    starts[i] = static_cast<int32_t>(begin > document ? begin : document);
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
  int64_t rows, heads, rotated, dim, first;  // the first `rotated` of `heads` are rotated, the others copied
  bool interleaved, back;
  const float* table;  // [position][dim]: cosines, sines
  Places at;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t half = dim / 2, step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
    if (i % heads >= rotated) {
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
