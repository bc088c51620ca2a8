#include "kernels/gemm/tiles/amx_digits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"

namespace bitgrad::kernels::gemm_detail {
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
