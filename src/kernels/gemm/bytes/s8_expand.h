// Codes of at most 8 bits as the small-integer products read them: bytes or 16-bit words of a few free indices over a
// block of k, and panels of 16 free indices.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bitgrad/kernels/gemm.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int64_t kStrip = 64;         // free indices expanded at a time
inline constexpr int64_t kDepthBytes = 1024;  // maximum k per block

// Range and shift of a dtype's bytes: value = byte + shift.
struct ByteRange {
  int64_t low, high, shift;
  int64_t magnitude() const { return std::max(-low - shift, high + shift); }
};
ByteRange byte_range(DType dtype);
// At least every sum of `depth` products, by magnitude, after zero points (of A and B) and row_minus are subtracted.
double largest_sum(const GemmArgs& args, int64_t depth, const ZeroRange& za, const ZeroRange& zb);

// out[f][step]: bytes of free indices f0 .. f0+count (at most kStrip) and k0 .. k0+depth, zero-padded to `step`, a
// multiple of 8.
void expand_strip(const GemmOperand& x, int64_t f0, int64_t count, int64_t k0, int64_t depth, int8_t* out,
                  int64_t step);

// Sums at most kDepthBytes codes.
int32_t sum_of(const int8_t* codes, int64_t count);

// out[k] = codes[k] + shift for k < depth, 0 from there up to step.
void widen(const int8_t* codes, int64_t depth, int64_t step, int32_t shift, int16_t* out);

// out[k] = codes[k] + offset as an unsigned byte.
void make_unsigned(const int8_t* codes, int64_t count, int64_t offset, uint8_t* out);

// Packs one panel: interleaves the 32-bit units of 16 rows that are `step` bytes apart.
void put_panel(const void* rows, int64_t step, int64_t units, void* panel);

}  // namespace bitgrad::kernels::gemm_detail
