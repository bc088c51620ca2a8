#include "kernels/gemm/bytes/s8_expand.h"

#include <cstring>

#include "kernels/gemm/bytes/s8.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// Transposes an 8 x 8 block of bytes (Warren, "Hacker's Delight", 2nd ed., section 7-3, applied to bytes).
void transpose_8x8(const int8_t* in, int64_t in_step, int8_t* out, int64_t out_step, int64_t out_rows) {
  uint64_t row[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&row[r], in + r * in_step, 8);
  const auto exchange = [&](int distance, int shift, uint64_t mask) {
    for (int r = 0; r < 8; ++r) {
      if ((r & distance) != 0) continue;
      const uint64_t t = ((row[r] >> shift) ^ row[r + distance]) & mask;
      row[r + distance] ^= t;
      row[r] ^= t << shift;
    }
  };
  exchange(1, 8, 0x00FF00FF00FF00FFu);
  exchange(2, 16, 0x0000FFFF0000FFFFu);
  exchange(4, 32, 0x00000000FFFFFFFFu);
  for (int r = 0; r < out_rows; ++r) std::memcpy(out + r * out_step, &row[r], 8);
}

using Bytes = int8_t __attribute__((vector_size(16)));
using UnalignedBytes = int8_t __attribute__((vector_size(16), aligned(1), may_alias));

// Transposes a 16 x 16 block in rounds that combine row i with row i + 8.
void transpose_16x16(const int8_t* in, int64_t in_step, int8_t* out, int64_t out_step) {
  Bytes row[16], next[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) row[r] = *reinterpret_cast<const UnalignedBytes*>(in + r * in_step);
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) {
      const Bytes a = row[r], b = row[r + 8];
      next[2 * r] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * r + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) row[r] = next[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) *reinterpret_cast<UnalignedBytes*>(out + r * out_step) = row[r];
}

// Transposes whole 16 x 16 blocks of k-major bytes; returns how many k are done for all `count` free indices.
int64_t transpose_bytes(const GemmOperand& x, int64_t f0, int64_t count, int64_t k0, int64_t depth, int8_t* out,
                        int64_t step) {
  if (x.dtype != dtypes::int8 || count % 16 != 0) return 0;
  int64_t k = 0;
  for (; k + 16 <= depth; k += 16) {
    const auto* in = static_cast<const int8_t*>(static_cast<const void*>(stored_row(x, k0 + k))) + f0;
    for (int64_t f = 0; f < count; f += 16) transpose_16x16(in + f, x.stride, out + f * step + k, step);
  }
  return k;
}

}  // namespace

ByteRange byte_range(DType dtype) {
  const DTypeInfo& info = dtype.info();
  if (info.kind == DTypeKind::kSign) return {-1, 1, 0};
  if (info.kind == DTypeKind::kUint) {
    return info.bits == 8 ? ByteRange{-128, 127, 128} : ByteRange{0, (int64_t{1} << info.bits) - 1, 0};
  }
  return {-(int64_t{1} << (info.bits - 1)), (int64_t{1} << (info.bits - 1)) - 1, 0};
}

double largest_sum(const GemmArgs& args, int64_t depth, const ZeroRange& za, const ZeroRange& zb) {
  const auto upper = [](const GemmOperand& x, const ZeroRange& zero) {
    return static_cast<double>(byte_range(x.dtype).magnitude()) +
           static_cast<double>(std::max(std::abs(zero.low), std::abs(zero.high)));
  };
  double minus = 0;
  for (int64_t i = 0; args.row_minus != nullptr && i < args.m; ++i)
    minus = std::max(minus, std::abs(static_cast<double>(args.row_minus[i])));
  return static_cast<double>(depth) * upper(args.a, za) * upper(args.b, zb) + minus;
}

void expand_strip(const GemmOperand& x, int64_t f0, int64_t count, int64_t k0, int64_t depth, int8_t* out,
                  int64_t step) {
  if (!x.k_major) {
    for (int64_t f = 0; f < count; ++f) {
      unpack_row_s8(x.dtype, stored_row(x, f0 + f), k0, depth, out + f * step);
      std::memset(out + f * step + depth, 0, static_cast<size_t>(step - depth));
    }
    return;
  }
  int8_t lines[8 * kStrip] = {};
  for (int64_t k = transpose_bytes(x, f0, count, k0, depth, out, step); k < step; k += 8) {
    for (int64_t line = 0; line < 8; ++line) {
      if (k + line < depth) {
        unpack_row_s8(x.dtype, stored_row(x, k0 + k + line), f0, count, lines + line * kStrip);
      } else {
        std::memset(lines + line * kStrip, 0, kStrip);
      }
    }
    for (int64_t f = 0; f < count; f += 8) {
      transpose_8x8(lines + f, kStrip, out + f * step + k, step, std::min<int64_t>(8, count - f));
    }
  }
}

// Eight at a time, as non-negative bytes in 16-bit lanes: kDepthBytes of them cannot overflow a lane.
int32_t sum_of(const int8_t* codes, int64_t count) {
  constexpr uint64_t kBias = 0x8080808080808080u, kBytes = 0x00FF00FF00FF00FFu, kWords = 0x0000FFFF0000FFFFu;
  uint64_t lanes = 0;
  int64_t k = 0;
  for (; k + 8 <= count; k += 8) {
    uint64_t word;
    std::memcpy(&word, codes + k, 8);
    word ^= kBias;
    lanes += (word & kBytes) + ((word >> 8) & kBytes);
  }
  lanes = (lanes & kWords) + ((lanes >> 16) & kWords);
  int32_t sum = static_cast<int32_t>((lanes & 0xFFFFFFFFu) + (lanes >> 32)) - static_cast<int32_t>(128 * k);
  for (; k < count; ++k) sum += codes[k];
  return sum;
}

void widen(const int8_t* codes, int64_t depth, int64_t step, int32_t shift, int16_t* out) {
  for (int64_t k = 0; k < depth; ++k) out[k] = static_cast<int16_t>(codes[k] + shift);
  std::fill(out + depth, out + step, static_cast<int16_t>(0));
}

void make_unsigned(const int8_t* codes, int64_t count, int64_t offset, uint8_t* out) {
  const uint8_t add = static_cast<uint8_t>(offset);
  for (int64_t k = 0; k < count; ++k) out[k] = static_cast<uint8_t>(static_cast<uint8_t>(codes[k]) + add);
}

void put_panel(const void* rows, int64_t step, int64_t units, void* panel) {
  const auto* from = static_cast<const char*>(rows);
  auto* to = static_cast<char*>(panel);
  for (int64_t u = 0; u < units; ++u) {
    for (int64_t lane = 0; lane < kS8Lanes; ++lane)
      std::memcpy(to + (u * kS8Lanes + lane) * 4, from + lane * step + u * 4, 4);
  }
}

}  // namespace bitgrad::kernels::gemm_detail
