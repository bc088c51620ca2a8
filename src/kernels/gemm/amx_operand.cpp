#include "kernels/gemm/amx_operand.h"

#include <algorithm>
#include <cstring>

#include "kernels/gemm/common.h"
#include "kernels/gemm/s8_expand.h"

namespace bitgrad::gemm_detail {
namespace {

constexpr int64_t kPieceDepth = 1024;  // contracted indices expanded at a time

void clear_rows(const BlockOfA& block, int64_t steps, uint8_t* out) {
  for (int64_t step = 0; block.rows < kBlockSide && step < steps; ++step) {
    std::memset(out + step * kStepBytes + block.rows * kTileBytes, 0,
                static_cast<size_t>((kBlockSide - block.rows) * kTileBytes));
  }
}

// The table of code_values_s8 holds uint8 less 128.
void make_raw(DType dtype, int64_t count, int8_t* codes) {
  if (byte_range(dtype).shift == 0) return;
  for (int64_t k = 0; k < count; ++k) codes[k] = static_cast<int8_t>(codes[k] ^ -128);
}

// Panels of 16 columns of bytes.
void pack_bytes(const GemmOperand& b, int64_t j0, int64_t columns, int64_t k, uint8_t* out) {
  int8_t strip[kTileRows * kPieceDepth];
  for (int64_t j = 0; j < columns; j += kTileRows, out += packed_panel_bytes(TileFormat::kBytes, k)) {
    const int64_t count = std::min<int64_t>(kTileRows, columns - j);
    for (int64_t k0 = 0; k0 < k; k0 += kPieceDepth) {
      const int64_t depth = std::min(kPieceDepth, k - k0), padded = round_up(depth, 64);
      expand_strip(b, j0 + j, count, k0, depth, strip, padded);
      std::memset(strip + count * padded, 0, static_cast<size_t>((kTileRows - count) * padded));
      make_raw(b.dtype, kTileRows * padded, strip);
      put_panel(strip, padded, padded / 4, out + k0 * kTileRows);
    }
  }
}

// Panels of bits from rows of bits.
void pack_bits(const GemmOperand& b, int64_t j0, int64_t columns, int64_t k, uint8_t* out) {
  const int64_t words = ceil_div(k, 64), row_bytes = ceil_div(k, 8);
  for (int64_t j = 0; j < round_up(columns, kTileRows); ++j) {
    uint8_t* lane = out + j / kTileRows * packed_panel_bytes(TileFormat::kSign, k) + j % kTileRows * 4;
    for (int64_t w = 0; w < words; ++w) {
      uint64_t word = 0;
      if (j < columns) {
        std::memcpy(&word, stored_row(b, j0 + j) + 8 * w, static_cast<size_t>(std::min<int64_t>(8, row_bytes - 8 * w)));
      }
      const uint32_t halves[2] = {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
      std::memcpy(lane + 2 * w * kTileBytes, &halves[0], 4);
      std::memcpy(lane + (2 * w + 1) * kTileBytes, &halves[1], 4);
    }
  }
}

// Panels of bits from rows [k][columns]: 32 x 32 bits are transposed in each of 16 lanes.
void pack_transposed_bits(const GemmOperand& b, const AmxIsa& isa, int64_t j0, int64_t columns, int64_t k,
                          uint8_t* out) {
  constexpr int64_t kLanes = pack_columns_unit(TileFormat::kSign) / 32;
  const int64_t panel = packed_panel_bytes(TileFormat::kSign, k), panels = ceil_div(columns, kTileRows);
  const auto used = static_cast<size_t>(ceil_div(columns, 8));
  alignas(64) uint32_t x[32 * kLanes];
  for (int64_t w = 0; w < 2 * ceil_div(k, 64); ++w) {
    std::memset(x, 0, sizeof x);
    for (int64_t r = 0; r < std::min<int64_t>(32, k - 32 * w); ++r)
      std::memcpy(x + r * kLanes, stored_row(b, 32 * w + r) + j0 / 8, used);
    isa.transpose_bits(x);
    for (int64_t p = 0; p < panels; ++p) {
      uint32_t words[kTileRows];
      for (int64_t j = 0; j < kTileRows; ++j) words[j] = x[(p % 2 * kTileRows + j) * kLanes + p / 2];
      std::memcpy(out + p * panel + w * kTileBytes, words, kTileBytes);
    }
  }
}

}  // namespace

void put_codes(const BlockOfA& block, uint8_t* out) {
  const GemmOperand& a = block.args.a;
  int8_t strip[kBlockSide * kPieceDepth];
  for (int64_t k = 0; k < block.depth; k += kPieceDepth) {
    const int64_t depth = std::min(kPieceDepth, block.depth - k), padded = round_up(depth, kTileBytes);
    expand_strip(a, block.i0, block.rows, block.k0 + k, depth, strip, padded);
    for (int64_t r = 0; r < block.rows; ++r) {
      int8_t* row = strip + r * padded;
      make_raw(a.dtype, depth, row);
      uint8_t* to = out + k / kTileBytes * kStepBytes + r * kTileBytes;
      for (int64_t t = 0; t < padded; t += kTileBytes, to += kStepBytes)
        block.isa.permute(reinterpret_cast<const uint8_t*>(row) + t, block.order, to);
    }
  }
  clear_rows(block, ceil_div(block.depth, kTileBytes), out);
}

void put_halves(const BlockOfA& block, uint8_t* out) {
  constexpr int64_t kHalves = kTileBytes / 2;
  const GemmOperand& a = block.args.a;
  const int64_t steps = ceil_div(block.depth, kHalves);
  for (int64_t step = 0; step < steps; ++step, out += kStepBytes) {
    const int64_t k = block.k0 + step * kHalves, count = std::min(kHalves, block.depth - step * kHalves);
    uint16_t lines[kBlockSide][kHalves] = {};
    if (a.k_major) {
      for (int64_t t = 0; t < count; ++t) {
        uint16_t line[kBlockSide];
        std::memcpy(line, stored_row(a, k + t) + 2 * block.i0, static_cast<size_t>(2 * block.rows));
        for (int64_t r = 0; r < block.rows; ++r) lines[r][t] = line[r];
      }
    } else {
      for (int64_t r = 0; r < block.rows; ++r)
        std::memcpy(lines[r], stored_row(a, block.i0 + r) + 2 * k, static_cast<size_t>(2 * count));
    }
    for (int64_t r = 0; r < kBlockSide; ++r)
      block.isa.permute(reinterpret_cast<const uint8_t*>(lines[r]), block.order, out + r * kTileBytes);
  }
}

void pack_columns(const GemmArgs& args, const AmxIsa& isa, TileFormat format, int64_t j0, int64_t columns,
                  uint8_t* out) {
  if (format == TileFormat::kBytes) return pack_bytes(args.b, j0, columns, args.k, out);
  if (args.b.k_major) return pack_transposed_bits(args.b, isa, j0, columns, args.k, out);
  pack_bits(args.b, j0, columns, args.k, out);
}

}  // namespace bitgrad::gemm_detail
