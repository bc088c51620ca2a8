// Operands of the products on the tile unit: rows of A as steps of 64 bytes in tile order, columns of B in panels.
#pragma once

#include <cstdint>

#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::kernels::gemm_detail {

// Rows and contracted indices of A that become blocks of 32 rows.
struct BlockOfA {
  const GemmArgs& args;
  const AmxIsa& isa;
  const uint8_t* order;  // StepOrder of B's format
  int64_t i0, rows;      // at most 32, or kMostRowsOfPut for k-major A; the rest of a block is zeroed
  int64_t k0, depth;     // padded with zeros to whole steps
  int64_t block_bytes;   // bytes between blocks
};
inline constexpr int64_t kMostRowsOfPut = 128;
// Row r of step 0 of a block.
inline uint8_t* row_of_tiles(const BlockOfA& block, int64_t r, uint8_t* out) {
  return out + r / kBlockSide * block.block_bytes + r % kBlockSide * kTileBytes;
}
// Writes 64 lines of kMostRowsOfPut bytes, [k][row], to one step of every block.
void put_lines(const BlockOfA& block, const uint8_t* lines, uint8_t* out);
// out: [block][step][2][16 rows][64 bytes]. Codes of at most 8 bits; uint8 becomes unsigned bytes, all others signed.
void put_codes(const BlockOfA& block, uint8_t* out);
// bf16 without parameters, in steps of 32.
void put_halves(const BlockOfA& block, uint8_t* out);

// Packs columns j0 .. j0 + columns of canonical B in panels of 16 over all of k, zero-padded to 64: bits (kSign,
// kBits1, kHalf) or bytes (kBytes; uint8 unsigned, all others signed). At most pack_columns_unit columns, with j0 a
// multiple of it.
constexpr int64_t pack_columns_unit(TileFormat format) { return format == TileFormat::kBytes ? 128 : 512; }
void pack_columns(const GemmArgs& args, const AmxIsa& isa, TileFormat format, int64_t j0, int64_t columns,
                  uint8_t* out);
// Bytes per panel that pack_columns writes.
constexpr int64_t packed_panel_bytes(TileFormat format, int64_t k) {
  return (k + 63) / 64 * 8 * kTileRows * format_bits(format);
}

// Rows of floats as base-256 digits of a fixed-point value with one unit per row. docs/numerics.md section 4, orders
// digits3 and digits2.
//
// For row i, with a = max abs x[i,k] over all of k, P digits and Q = 127 (256^P - 1) / 255: e is the smallest integer
// with rint(a 2^-e) <= Q (if a = 0: e = 0), and q = rint(x 2^-e) = sum_p d_p 256^(P-1-p). Digits after the first are in
// -128 .. 127. A row that contains NaN or Inf has unit NaN and digits 0.

// units[r] = 2^e of row block.i0 + r. Reads all of k, regardless of k0 and depth.
void find_units(const BlockOfA& block, int parts, double* units);
// out: [block][part][step][2][16 rows][64 bytes], parts part_bytes apart.
void put_digits(const BlockOfA& block, int parts, const double* units, int64_t part_bytes, uint8_t* out);

}  // namespace bitgrad::kernels::gemm_detail
