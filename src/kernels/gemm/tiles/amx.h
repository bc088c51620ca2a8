// Products on the tile unit (Intel AMX; SDM vol. 1 chapter 18, vol. 2 TDPBSSD, TDPBF16PS). docs/numerics.md section 4.
//
// A block of 32 x 32 sums occupies four tiles, beside two tiles of A and two of B. One step is 64 bytes of a row of A:
// 64 int8 or 32 bf16 along k. B's codes stay packed in memory. While the four products of a step run, the codes of a
// later step are expanded into a ring of four steps in L1. The order of k within a step is free as long as both sides
// agree, so it is chosen such that 64 bytes of packed codes become whole rows of a tile.
//
// An instruction set provides the loop and a few small functions (AmxIsa): either the machine's, or in tests portable
// code that emulates the tile instructions (tests/emulation/amx/), so that every index map is tested on any machine.
// Operands and digits (amx_operand) and the cut (amx.cpp) are shared.
#pragma once

#include <array>
#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int kTileRows = 16;     // per tile of A and of sums
inline constexpr int kTileBytes = 64;    // per row of a tile
inline constexpr int kBlockSide = 32;    // rows and columns of a block of sums
inline constexpr int kStepBytes = 2048;  // two tiles of A or of expanded B
inline constexpr int kSumBytes = 4096;   // a block of sums, [32][32] int32 or fp32
inline constexpr int kSumsStride = 128;  // bytes between its rows
inline constexpr int kMostParts = 3;     // digits
inline constexpr int kRingSteps = 4;

// Storage of B's codes: panels of 16 columns, [panel][32-bit word of k][16 columns], where a word is 32 bits of a
// canonical row. kSign: bit b is the value 2 b - 1. kHalf: the same for bf16 steps. kBits1 .. kBits4: fields, signed or
// unsigned. kBytes: as the tile unit reads them.
enum class TileFormat : uint8_t { kSign, kBits1, kBits2, kBits4, kBytes, kHalf, kCount };
inline constexpr int kTileFormats = static_cast<int>(TileFormat::kCount);
// The kind of a product's sums.
enum class SumKind : uint8_t { kCodes, kFloats, kDigits };
// The operands of a product: signed or unsigned bytes of A, then of B; or bf16 pairs.
enum class TileProduct : uint8_t { kSS, kSU, kUS, kUU, kBf16 };

constexpr int format_bits(TileFormat format) {
  constexpr int kBits[kTileFormats] = {1, 1, 2, 4, 8, 1};
  return kBits[static_cast<int>(format)];
}
// Contracted indices per step, and bytes per step of one panel.
constexpr int step_depth(TileFormat format) { return format == TileFormat::kHalf ? 32 : 64; }
constexpr int panel_step_bytes(TileFormat format) { return step_depth(format) * format_bits(format) * kTileRows / 8; }

// The byte of a step in natural order that is placed at byte `at` of a row of A for this format of B: byte c of row r
// of a tile of B comes from field r % fields of byte c of word r / fields.
constexpr int step_order(TileFormat format, int at) {
  const int r = at / 4, c = at % 4;
  if (format == TileFormat::kHalf) return 2 * (16 * (c / 2) + r) + c % 2;
  const int fields = 8 / format_bits(format);
  return r / fields * 4 * fields + c * fields + r % fields;
}
using StepOrder = std::array<uint8_t, kTileBytes>;
constexpr StepOrder make_step_order(TileFormat format) {
  StepOrder order{};
  for (int at = 0; at < kTileBytes; ++at) order[static_cast<size_t>(at)] = static_cast<uint8_t>(step_order(format, at));
  return order;
}

// fp32 rows of C that the loop writes itself if a block has all 32 columns. For sums of codes, y = float(acc) * (sa[i]
// * sb[j]); for bf16 and digits, y = sum * sb[j]. Then + bias[j] if there is one. C = y or C + y.
struct DirectRows {
  float* c;               // at block 0 and pair 0; nullptr: nothing is written directly
  int64_t stride;         // elements between rows
  int64_t rows, columns;  // from c to the end of C
  const float *sa, *sb;   // at row 0; at column 0
  int64_t sa_step;        // 0: one for all rows
  int64_t sb_step;        // 0: 32 equal values for all columns
  const float* bias;      // may be nullptr
  const double* unit;     // units of the rows' digits
  bool accumulate;
  bool streamed;  // with non-temporal stores: c and its rows are aligned to 64 bytes, and C is not read
};

// One call of the loop: blocks of rows times pairs of panels.
struct TileTask {
  const uint8_t* a;      // [block][part][step][2][16 rows][64 bytes]
  int64_t blocks;        // of 32 rows
  bool half_block;       // the last block has at most 16 rows
  int64_t steps;         // at least 1
  const uint8_t* b;      // the first panel
  int64_t panel_stride;  // bytes
  int64_t panels;        // of 16 columns; an odd last one is read twice
  bool odd_words;        // kSign, kBits1: the last step has only one word
  // Sums are kept here: [pair][block][part][kSumBytes], where the blocks * parts of a pair take sums_stride bytes.
  // nullptr: they are passed to finish and not kept.
  uint8_t* sums;
  int64_t sums_stride;
  bool resume;  // start from these sums
  bool unsigned_fields;
  DirectRows direct;
  // Where the outputs of block 0 and pair 0 begin, for prefetching; bytes between rows and between pairs.
  const uint8_t* c;
  int64_t c_row, c_pair;
  // Receives rows [r0, r1) of a finished block that is not written directly, parts kSumBytes apart; nullptr: the sums
  // are not finished yet. Must not touch any tile.
  void (*finish)(const void* context, int64_t block, int64_t pair, const uint8_t* sums, int r0, int r1);
  const void* context;
};

struct AmxIsa {
  // nullptr if the product does not exist. parts: 1, or 2 and 3 for digits (kSign, and kBytes with kSS).
  void (*(*loop)(TileFormat format, TileProduct product, int parts))(const TileTask&);
  // out[t * stride + i] = in[t * 64 + order[i]] for `count` blocks of 64 bytes.
  void (*permute)(const uint8_t* in, const uint8_t* order, int64_t count, uint8_t* out, int64_t stride);
  // Signed digits of q[j] = rint(x[j] * scale[j]), |q| < 2^31, with an exact product:
  // q = sum of out[p * stride + j] * 256^(parts - 1 - p).
  void (*to_digits)(const float* x, const double* scale, int64_t n, int parts, uint8_t* out, int64_t stride);
  // Bit patterns of abs x, which order like the values: returns the maximum of all of them and `max`; then the same per
  // j.
  int32_t (*largest_bits)(const float* x, int64_t n, int32_t max);
  void (*largest_bits_each)(const float* x, int64_t n, int32_t* max);
  // 32 columns of a row: out = fp32(t * unit), where t is the fma chain that joins the sums of the parts (kSumBytes
  // apart).
  void (*join_digits)(const uint8_t* sums, int parts, double unit, float* out);
  // Transposes 32 x 32 bits in each of 16 lanes, in place: bit k of word[j] = bit j of rows[k], x[32][16].
  void (*transpose_bits)(uint32_t* x);
  // out[m * 64 + k] = in[k * stride + m]; reads 64 x 64 bytes and writes the first `lines` lines of out.
  void (*transpose_bytes)(const uint8_t* in, int64_t stride, int64_t lines, uint8_t* out);
  // out[4 j + i] = in[i * stride + j] for 16 columns of 4 lines.
  void (*interleave)(const uint8_t* in, int64_t stride, uint8_t* out);
};

// B's layouts and dtypes are checked by the kernel.
bool amx_int_supports(const GemmArgs& args);
bool amx_bf16_supports(const GemmArgs& args);
bool amx_digits_supports(const GemmArgs& args);

// These read B in its own layout: panels16, tiles16, or canonical, which is packed during the call.
void amx_int_gemm(const GemmArgs& args, const AmxIsa& isa);
void amx_bf16_gemm(const GemmArgs& args, const AmxIsa& isa);
void amx_digits_gemm(const GemmArgs& args, int parts, const AmxIsa& isa);

// The instructions of this machine.
const AmxIsa& amx_machine();

}  // namespace bitgrad::kernels::gemm_detail
