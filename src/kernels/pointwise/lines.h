// Access to the inner axis of a strided array on the CPU, as fp32.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
#include "kernels/pointwise/walk.h"

namespace bitgrad::kernels::pointwise_loops {

inline constexpr int64_t kPiece = 1024;  // elements per buffer

// The inner axis of an operand.
struct InputLine {
  const void* data;
  bool bf16;
  int64_t step;

  bool side_by_side() const { return !bf16 && step == 1; }
  float at(int64_t i) const {
    return bf16 ? bf16_to_float(static_cast<const uint16_t*>(data)[i * step])
                : static_cast<const float*>(data)[i * step];
  }
  // Elements i .. i + n - 1 as contiguous fp32, copied to `space` unless they already are.
  const float* read(int64_t i, int64_t n, float* space) const {
    if (side_by_side()) return static_cast<const float*>(data) + i;
    if (bf16 && step == 1)
      elementwise::loops().from_bf16(n, static_cast<const uint16_t*>(data) + i, space);
    else
      for (int64_t k = 0; k < n; ++k) space[k] = at(i + k);
    return space;
  }
};

struct OutputLine {
  void* data;
  bool bf16;
  int64_t step;

  bool side_by_side() const { return !bf16 && step == 1; }
  // Where a loop writes elements from i on; write() stores them from `space`.
  float* place(int64_t i, float* space) const { return side_by_side() ? static_cast<float*>(data) + i : space; }
  void write(int64_t i, int64_t n, const float* space) const {
    if (side_by_side()) return;
    if (bf16 && step == 1) return elementwise::loops().to_bf16(n, space, static_cast<uint16_t*>(data) + i);
    for (int64_t k = 0; k < n; ++k) put(i + k, space[k]);
  }
  void put(int64_t i, float value) const {
    if (bf16)
      static_cast<uint16_t*>(data)[i * step] = bf16_from_float(value);
    else
      static_cast<float*>(data)[i * step] = value;
  }
};

// Calls body(cursor, begin, end) for elements [begin, end) of the inner axis at the cursor's outer index. Cut by shape
// alone.
template <int kArrays, typename Body>
void for_lines(const Walk<kArrays>& walk, Body&& body) {
  for_row_blocks(walk.outer(), walk.inner(), [&](int64_t r0, int64_t r1, int64_t begin, int64_t end) {
    WalkCursor<kArrays> cursor(walk, r0);
    for (int64_t r = r0; r < r1; ++r, cursor.next()) body(cursor, begin, end);
  });
}

inline const void* moved(const void* data, DType dtype, int64_t elements) {
  return static_cast<const char*>(data) + elements * dtype.bits() / 8;
}

inline bool is_empty(const int64_t* size) { return size[0] * size[1] * size[2] * size[3] == 0; }

}  // namespace bitgrad::kernels::pointwise_loops
