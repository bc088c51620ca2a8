// The loops of family quantize as a table of functions, one table per ISA. All tables give bit-identical results.
//
// A chunk of a row is processed value -> code -> bits: `number` computes u, the value that the rule rounds; `nearest`,
// `stochastic` or `level` compute raw codes (one byte each) and pass bytes (0 or 1); `pack` packs bits. The driver is
// quantize.cpp.
#pragma once

#include <cstdint>

#include "bitgrad/base/math.h"
#include "kernels/isa_loops.h"
#include "kernels/quantize.h"
#include "kernels/quantize/rounding.h"

namespace bitgrad::kernels::quantize_loops {
inline constexpr int64_t kChunk = 512;  // elements of one chunk, a multiple of 64
inline constexpr int kRules = 10;       // CodeRule

// The parameters of a chunk: a single value each (`per_element` false) or one per element. Never null.
struct ChunkParams {
  bool per_element = false;
  const float* scale = nullptr;   // 1 if the tensor has none; if `per_element`, 1/s for rules that multiply by it
  const int32_t* zero = nullptr;  // 0 if the tensor has none
  const float* offset = nullptr;  // 0 if the tensor has none
};

// Parameters shared by groups of contiguous elements: element i uses group 0 while i < left, then group 1 + (i - left)
// / group.
struct GroupParams {
  int64_t left = 0, group = 0;
  const float* scale = nullptr;   // 1 if the tensor has none
  const int32_t* zero = nullptr;  // null means 0
  const float* offset = nullptr;  // null means 0
};
inline constexpr int64_t kMostGroups = kChunk / 16 + 1;

// How values become raw codes.
struct CodeRange {
  int32_t lo = 0, hi = 0;  // within +-2^30
  uint32_t code_mask = 0;  // 2^bits - 1
  bool sign = false;       // kind sign: raw = value >= 0, no clamp
  CodeParts parts = {};    // stochastic rounding
};

struct QuantizeLoops {
  void (*number[kRules])(int64_t n, const float* x, const ChunkParams& p, float* u);
  void (*nearest)(int64_t n, const float* u, const ChunkParams& p, const CodeRange& range, uint8_t* raw, uint8_t* pass);
  void (*stochastic)(int64_t n, const float* u, const ChunkParams& p, const CodeRange& range, const uint16_t* draws,
                     uint8_t* raw, uint8_t* pass);
  // raw[i] = codes[number of bounds below u[i]]
  void (*level)(int64_t n, const float* u, int64_t bounds, const float* bound, const uint8_t* codes, uint8_t* raw);
  // gx[i] = g[i] where x is finite and the unclamped code of u lies in the range (or where abs x <= 1); otherwise +0.
  void (*clip)(int64_t n, const float* x, const float* u, const ChunkParams& p, const CodeRange& range, const float* g,
               float* gx);
  void (*clip_unit)(int64_t n, const float* x, const float* g, float* gx);
  // Fast path for kInverse, kDivide and kOffset, n <= kChunk, raw with room for a multiple of 64: equals number and
  // nearest (raw codes), or number and clip (gx, which may be g). Returns false if it was not done: the ISA or the
  // parameters do not allow it or, for codes, an x is NaN or Inf. Then raw is unspecified, and gx holds g or the result
  // of clip, so that the general path still gives the same result.
  bool (*code_groups)(CodeRule rule, int64_t n, const float* x, const GroupParams& p, const CodeRange& range,
                      uint8_t* raw);
  bool (*clip_groups)(CodeRule rule, int64_t n, const float* x, const GroupParams& p, const CodeRange& range,
                      const float* g, float* gx);
  void (*pass_unit)(int64_t n, const float* x, uint8_t* pass);  // abs x <= 1
  bool (*any_nonfinite)(int64_t n, const float* x);
  // Packs groups of 8 bytes (each < 2^bits) into `bits` bytes each; writes up to 8 bytes past the end.
  void (*pack)(int bits, int64_t n, const uint8_t* raw, uint8_t* out);
  // Rows of n elements, ldx apart: writes bits of x >= 0 to codes + r * stride (bytes) and, unless mask is null, of abs
  // x <= 1 to mask + r * words, in (n+63)/64 words each. Returns whether an x is NaN or Inf (its bit and pass are 0).
  bool (*sign_rows)(int64_t rows, int64_t n, const float* x, int64_t ldx, uint8_t* codes, int64_t stride,
                    uint64_t* mask, int64_t words, bool clip);
  // The largest bit pattern of abs(x * f), with f per element (nullptr: 1). Finite values are below 0x7F800000.
  int32_t (*largest_of_row)(int64_t n, const float* x, const float* fold);
  // largest[i] = max(largest[i], bits of abs(x[i] * fold))
  void (*largest_of_columns)(int64_t n, const float* x, float fold, int32_t* largest);
  // absmax codes of finite values: u = (x * f) * inverse, rounded stochastically or to nearest (draws null), in [-127,
  // 127]. int8_row: one inverse, f per element (nullptr: 1). int8_columns: one inverse per element, a single f.
  void (*int8_row)(int64_t n, const float* x, const float* fold, float inverse, const uint16_t* draws, int8_t* q);
  void (*int8_columns)(int64_t n, const float* x, float fold, const float* inverse, const uint16_t* draws, int8_t* q);
  // Expands parameters to n elements in groups of `group`; the first group has `left` elements left. Group parameters
  // are 32-bit words, `step` apart, starting at `from`.
  void (*spread)(int64_t n, int64_t left, int64_t group, int64_t step, const void* from, void* out);
  // y = s * (q - z) if zeros, else s * q + m if offsets, else s * q; q may be y
  void (*value)(int64_t n, const float* q, const ChunkParams& p, bool zeros, bool offsets, float* y);
};

BITGRAD_ISA_TABLES(QuantizeLoops)

}  // namespace bitgrad::kernels::quantize_loops
