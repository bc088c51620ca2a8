#include "kernels/gemm/amx_digits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/gemm/common.h"
#include "kernels/gemm/float_operand.h"

namespace bitgrad::gemm_detail {
namespace {

constexpr int64_t kDepth = kTileBytes;

// Values of A, with what fold_b_scale multiplies into them: out[row][kDepth], zero behind `count`.
void read_block(const BlockOfA& block, int64_t k, int64_t count, float (*out)[kDepth]) {
  const GemmArgs& args = block.args;
  float scales[kDepth];
  const bool folded = fold_of(args) == Fold::kIntoA;
  for (int64_t t = 0; folded && t < count; ++t) scales[t] = args.b.scale.scale[fold_index_k(args.b, k + t)];
  if (!args.a.k_major) {
    for (int64_t r = 0; r < block.rows; ++r) {
      read_values(args.a, block.i0 + r, k, count, false, out[r]);
      for (int64_t t = 0; folded && t < count; ++t) out[r][t] = out[r][t] * scales[t];
      std::fill(out[r] + count, out[r] + kDepth, 0.0f);
    }
    return;
  }
  for (int64_t r = 0; r < block.rows; ++r) std::fill(out[r] + count, out[r] + kDepth, 0.0f);
  for (int64_t t = 0; t < count; ++t) {
    float line[kBlockSide];
    read_values(args.a, k + t, block.i0, block.rows, false, line);
    for (int64_t r = 0; r < block.rows; ++r) out[r][t] = folded ? line[r] * scales[t] : line[r];
  }
}

constexpr int32_t kInfinity = 0x7F800000;

// The bits of the largest abs x: they lie in the order of the numbers, Inf and NaN above all.
int32_t largest_bits(const float* x, int32_t most) {
  for (int64_t t = 0; t < kDepth; ++t) most = std::max(most, std::bit_cast<int32_t>(x[t]) & 0x7FFFFFFF);
  return most;
}

double unit_of(int32_t bits, int parts) {
  if (bits >= kInfinity) return std::numeric_limits<double>::quiet_NaN();
  if (bits == 0) return 1;
  const int width = parts == 3 ? 23 : 15, most = parts == 3 ? 127 * 65793 : 127 * 257;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(std::bit_cast<float>(bits)), &exponent);
  exponent -= width;
  if (std::rint(std::ldexp(fraction, width)) > most) ++exponent;
  return std::ldexp(1.0, exponent);
}

}  // namespace

void find_units(const BlockOfA& block, int parts, double* units) {
  int32_t most[kBlockSide] = {};
  float values[kBlockSide][kDepth];
  for (int64_t k = 0; k < block.args.k; k += kDepth) {
    read_block(block, k, std::min(kDepth, block.args.k - k), values);
    for (int64_t r = 0; r < block.rows; ++r) most[r] = largest_bits(values[r], most[r]);
  }
  for (int64_t r = 0; r < block.rows; ++r) units[r] = unit_of(most[r], parts);
}

void put_digits(const BlockOfA& block, int parts, const double* units, int64_t part_bytes, uint8_t* out) {
  float values[kBlockSide][kDepth];
  for (int64_t k = 0; k < block.depth; k += kDepth, out += kStepBytes) {
    read_block(block, block.k0 + k, std::min(kDepth, block.depth - k), values);
    for (int64_t r = 0; r < kBlockSide; ++r) {
      int32_t q[kDepth] = {};
      if (r < block.rows && !std::isnan(units[r])) block.isa.to_fixed(values[r], 1 / units[r], q);
      for (int part = parts - 1; part >= 0; --part) {
        uint8_t digits[kDepth];
        for (int64_t t = 0; t < kDepth; ++t) {
          digits[t] = static_cast<uint8_t>(q[t]);
          q[t] = (q[t] + 128) >> 8;  // q less its signed low byte, by 256
        }
        block.isa.permute(digits, block.order, out + part * part_bytes + r * kTileBytes);
      }
    }
  }
}

}  // namespace bitgrad::gemm_detail
