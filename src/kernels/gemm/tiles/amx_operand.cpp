#include "kernels/gemm/tiles/amx_operand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kPieceDepth = 1024;        // contracted indices expanded at a time
constexpr int64_t kHalves = kTileBytes / 2;  // bf16 values per step

void clear_rows(const BlockOfA& block, int64_t steps, uint8_t* out) {
  for (int64_t step = 0; block.rows < kBlockSide && step < steps; ++step) {
    std::memset(out + step * kStepBytes + block.rows * kTileBytes, 0,
                static_cast<size_t>((kBlockSide - block.rows) * kTileBytes));
  }
}

// The table of code_values_s8 holds uint8 minus 128; this undoes it.
void make_raw(DType dtype, int64_t count, int8_t* codes) {
  if (byte_range(dtype).shift == 0) return;
  for (int64_t k = 0; k < count; ++k) codes[k] = static_cast<int8_t>(codes[k] ^ -128);
}

// Packs panels of 16 columns of bytes.
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

// The same from rows [k][columns]: dwords are assembled from 4 lines.
void pack_byte_lines(const GemmOperand& b, const AmxIsa& isa, int64_t j0, int64_t columns, int64_t k, uint8_t* out) {
  constexpr int64_t kWidth = pack_columns_unit(TileFormat::kBytes);
  const int64_t panel = packed_panel_bytes(TileFormat::kBytes, k);
  uint8_t lines[4 * kWidth] = {};
  for (int64_t unit = 0; unit < round_up(k, 64) / 4; ++unit) {
    for (int64_t t = 0; t < 4; ++t) {
      auto* line = reinterpret_cast<int8_t*>(lines + t * kWidth);
      if (4 * unit + t < k) {
        unpack_row_s8(b.dtype, stored_row(b, 4 * unit + t), j0, columns, line);
        make_raw(b.dtype, columns, line);
      }
    }
    for (int64_t p = 0; p < ceil_div(columns, kTileRows); ++p)
      isa.interleave(lines + p * kTileRows, kWidth, out + p * panel + unit * kTileBytes);
  }
}

// Packs panels of bits from rows of bits.
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

// Packs panels of bits from rows [k][columns] by transposing 32 x 32 bits in each of 16 lanes.
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

void put_code_lines(const BlockOfA& block, uint8_t* out) {
  const GemmOperand& a = block.args.a;
  uint8_t lines[kTileBytes * kMostRowsOfPut] = {};
  for (int64_t k = 0; k < block.depth; k += kTileBytes, out += kStepBytes) {
    const int64_t count = std::min<int64_t>(kTileBytes, block.depth - k);
    for (int64_t t = 0; t < count; ++t) {
      auto* line = reinterpret_cast<int8_t*>(lines + t * kMostRowsOfPut);
      unpack_row_s8(a.dtype, stored_row(a, block.k0 + k + t), block.i0, block.rows, line);
      make_raw(a.dtype, block.rows, line);
    }
    std::memset(lines + count * kMostRowsOfPut, 0, static_cast<size_t>((kTileBytes - count) * kMostRowsOfPut));
    put_lines(block, lines, out);
  }
}

// Element k = 16 e + r of a step is half e of dword r.
void put_half_lines(const BlockOfA& block, uint8_t* out) {
  const GemmOperand& a = block.args.a;
  uint16_t lines[kHalves][kMostRowsOfPut] = {};
  for (int64_t k = 0; k < block.depth; k += kHalves, out += kStepBytes) {
    const int64_t count = std::min(kHalves, block.depth - k);
    for (int64_t t = 0; t < kHalves; ++t) {
      const auto bytes = static_cast<size_t>(2 * block.rows);
      if (t < count)
        std::memcpy(lines[t], stored_row(a, block.k0 + k + t) + 2 * block.i0, bytes);
      else
        std::memset(lines[t], 0, bytes);
    }
    uint32_t pairs[kTileRows][kMostRowsOfPut];
    for (int64_t r = 0; r < kTileRows; ++r)
      for (int64_t m = 0; m < kMostRowsOfPut; ++m)
        pairs[r][m] = lines[r][m] | static_cast<uint32_t>(lines[kTileRows + r][m]) << 16;
    for (int64_t m = 0; m < round_up(block.rows, kBlockSide); ++m) {
      uint32_t row[kTileRows];
      for (int64_t r = 0; r < kTileRows; ++r) row[r] = pairs[r][m];
      std::memcpy(row_of_tiles(block, m, out), row, kTileBytes);
    }
  }
}

}  // namespace

void put_lines(const BlockOfA& block, const uint8_t* lines, uint8_t* out) {
  alignas(64) uint8_t rows[kTileBytes * kTileBytes];
  const int64_t end = round_up(block.rows, kBlockSide);
  for (int64_t m = 0; m < end; m += kTileBytes) {
    block.isa.transpose_bytes(lines + m, kMostRowsOfPut, std::min<int64_t>(kTileBytes, end - m), rows);
    for (int64_t r = 0; r < std::min<int64_t>(kTileBytes, end - m); r += kBlockSide) {
      block.isa.permute(rows + r * kTileBytes, block.order, kBlockSide, row_of_tiles(block, m + r, out), kTileBytes);
    }
  }
}

void put_codes(const BlockOfA& block, uint8_t* out) {
  if (block.args.a.k_major) return put_code_lines(block, out);
  const GemmOperand& a = block.args.a;
  int8_t row[kPieceDepth];
  // Stored bytes can be used by the tile unit as they are; only the last, partial step is copied.
  const int64_t full = a.dtype.bits() == 8 ? block.depth / kTileBytes : 0;
  for (int64_t r = 0; r < block.rows; ++r) {
    uint8_t* to = out + r * kTileBytes;
    const uint8_t* stored = stored_row(a, block.i0 + r);
    block.isa.permute(stored + block.k0, block.order, full, to, kStepBytes);
    for (int64_t k = full * kTileBytes; k < block.depth; k += kPieceDepth) {
      const int64_t depth = std::min(kPieceDepth, block.depth - k), padded = round_up(depth, kTileBytes);
      unpack_row_s8(a.dtype, stored, block.k0 + k, depth, row);
      make_raw(a.dtype, depth, row);
      std::memset(row + depth, 0, static_cast<size_t>(padded - depth));
      block.isa.permute(reinterpret_cast<const uint8_t*>(row), block.order, padded / kTileBytes,
                        to + k / kTileBytes * kStepBytes, kStepBytes);
    }
  }
  clear_rows(block, ceil_div(block.depth, kTileBytes), out);
}

void put_halves(const BlockOfA& block, uint8_t* out) {
  if (block.args.a.k_major) return put_half_lines(block, out);
  const GemmOperand& a = block.args.a;
  for (int64_t r = 0; r < block.rows; ++r) {
    const uint8_t* row = stored_row(a, block.i0 + r) + 2 * block.k0;
    uint8_t* to = out + r * kTileBytes;
    const int64_t full = block.depth / kHalves, rest = block.depth % kHalves;
    block.isa.permute(row, block.order, full, to, kStepBytes);
    if (rest == 0) continue;
    uint8_t tail[kTileBytes] = {};
    std::memcpy(tail, row + full * kTileBytes, static_cast<size_t>(2 * rest));
    block.isa.permute(tail, block.order, 1, to + full * kStepBytes, kStepBytes);
  }
  clear_rows(block, ceil_div(block.depth, kHalves), out);
}

void pack_columns(const GemmArgs& args, const AmxIsa& isa, TileFormat format, int64_t j0, int64_t columns,
                  uint8_t* out) {
  if (format == TileFormat::kBytes && args.b.k_major) return pack_byte_lines(args.b, isa, j0, columns, args.k, out);
  if (format == TileFormat::kBytes) return pack_bytes(args.b, j0, columns, args.k, out);
  if (args.b.k_major) return pack_transposed_bits(args.b, isa, j0, columns, args.k, out);
  pack_bits(args.b, j0, columns, args.k, out);
}

namespace {

constexpr int64_t kPiece = 1024;  // values of a stored row at a time

// Values of A, including the factors of fold_b_scale.
class Values {
 public:
  explicit Values(const GemmArgs& args)
      : args_(args),
        folded_(fold_of(args) == Fold::kIntoA),
        direct_(!folded_ && args.a.dtype == dtypes::fp32 && args.a.scale.trivial()) {}

  // Reads n <= kPiece values of stored row r from column c on; valid until the next call.
  const float* read(int64_t r, int64_t c, int64_t n) {
    if (direct_) return reinterpret_cast<const float*>(stored_row(args_.a, r)) + c;
    read_values(args_.a, r, c, n, false, line_);
    for (int64_t j = 0; folded_ && j < n; ++j) {
      const int64_t k = args_.a.k_major ? r : c + j;
      line_[j] = line_[j] * args_.b.scale.scale[fold_index_k(args_.b, k)];
    }
    return line_;
  }

 private:
  const GemmArgs& args_;
  const bool folded_, direct_;
  float line_[kPiece];
};

double unit_of(int32_t bits, int parts) {
  constexpr int32_t kInfinity = 0x7F800000;
  if (bits >= kInfinity) return std::numeric_limits<double>::quiet_NaN();
  if (bits == 0) return 1;
  const int width = parts == 3 ? 23 : 15, max = parts == 3 ? 127 * 65793 : 127 * 257;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(std::bit_cast<float>(bits)), &exponent);
  exponent -= width;
  if (std::rint(std::ldexp(fraction, width)) > max) ++exponent;
  return std::ldexp(1.0, exponent);
}

// The factor that converts a row to digits; 0 if the row is not finite, in which case its digits are never used.
double inverse(double unit) { return std::isnan(unit) ? 0 : 1 / unit; }

void put_digit_rows(const BlockOfA& block, int parts, const double* units, int64_t part_bytes, uint8_t* out) {
  Values values(block.args);
  double scale[kPiece];
  uint8_t digits[kMostParts * kPiece];
  for (int64_t r = 0; r < block.rows; ++r) {
    std::fill(scale, scale + std::min(kPiece, block.depth), inverse(units[r]));
    for (int64_t k = 0; k < block.depth; k += kPiece) {
      const int64_t count = std::min(kPiece, block.depth - k), padded = round_up(count, kTileBytes);
      block.isa.to_digits(values.read(block.i0 + r, block.k0 + k, count), scale, count, parts, digits, kPiece);
      for (int part = 0; part < parts; ++part) {
        uint8_t* from = digits + part * kPiece;
        std::memset(from + count, 0, static_cast<size_t>(padded - count));
        uint8_t* to = out + part * part_bytes + k / kTileBytes * kStepBytes + r * kTileBytes;
        block.isa.permute(from, block.order, padded / kTileBytes, to, kStepBytes);
      }
    }
  }
  for (int part = 0; part < parts && block.rows < kBlockSide; ++part) {
    uint8_t* to = out + part * part_bytes + block.rows * kTileBytes;
    for (int64_t k = 0; k < block.depth; k += kTileBytes, to += kStepBytes)
      std::memset(to, 0, static_cast<size_t>((kBlockSide - block.rows) * kTileBytes));
  }
}

void put_digit_lines(const BlockOfA& block, int parts, const double* units, int64_t part_bytes, uint8_t* out) {
  constexpr int64_t kPart = kTileBytes * kMostRowsOfPut;
  Values values(block.args);
  double scale[kMostRowsOfPut];
  for (int64_t r = 0; r < block.rows; ++r) scale[r] = inverse(units[r]);
  uint8_t lines[kMostParts * kPart] = {};
  for (int64_t k = 0; k < block.depth; k += kTileBytes, out += kStepBytes) {
    const int64_t count = std::min<int64_t>(kTileBytes, block.depth - k);
    for (int64_t t = 0; t < count; ++t) {
      const float* x = values.read(block.k0 + k + t, block.i0, block.rows);
      block.isa.to_digits(x, scale, block.rows, parts, lines + t * kMostRowsOfPut, kPart);
    }
    for (int part = 0; part < parts; ++part) {
      std::memset(lines + part * kPart + count * kMostRowsOfPut, 0,
                  static_cast<size_t>((kTileBytes - count) * kMostRowsOfPut));
      put_lines(block, lines + part * kPart, out + part * part_bytes);
    }
  }
}

}  // namespace

void find_units(const BlockOfA& block, int parts, double* units) {
  Values values(block.args);
  int32_t max[kMostRowsOfPut] = {};
  if (block.args.a.k_major) {
    for (int64_t k = 0; k < block.args.k; ++k)
      block.isa.largest_bits_each(values.read(k, block.i0, block.rows), block.rows, max);
  } else {
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t k = 0; k < block.args.k; k += kPiece) {
        const int64_t count = std::min(kPiece, block.args.k - k);
        max[r] = block.isa.largest_bits(values.read(block.i0 + r, k, count), count, max[r]);
      }
    }
  }
  for (int64_t r = 0; r < block.rows; ++r) units[r] = unit_of(max[r], parts);
}

void put_digits(const BlockOfA& block, int parts, const double* units, int64_t part_bytes, uint8_t* out) {
  const auto put = block.args.a.k_major ? &put_digit_lines : &put_digit_rows;
  put(block, parts, units, part_bytes, out);
}

}  // namespace bitgrad::kernels::gemm_detail
