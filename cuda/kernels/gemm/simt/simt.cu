// Products for few rows of A, bound by reading B once. A warp computes one column of C for four rows of A, or eight
// warps do: they split k and add integers, so the result does not depend on the split. The lanes take chunks of k in
// turn, by dp4a on bytes or popc on bit planes, and add their sums by shuffles. Canonical codes are unpacked in
// registers.
#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/simt/args.h"
#include "cuda/kernels/gemm/unpack.h"

namespace bitgrad::cuda::gemm {

// Loads kWords words of a row starting at word `at`, with zeros past its end.
template <int kWords>
BITGRAD_DEVICE inline void load_words(const SimtSide& x, const uint32_t* row, int64_t at, uint32_t (&out)[kWords]) {
  if (kWords % 4 == 0 && x.aligned16 && at + kWords <= x.words) {
    BITGRAD_UNROLL
    for (int w = 0; w + 4 <= kWords; w += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(row + at + w);
      out[w] = four.x;
      out[w + 1] = four.y;
      out[w + 2] = four.z;
      out[w + 3] = four.w;
    }
    return;
  }
  BITGRAD_UNROLL
  for (int w = 0; w < kWords; ++w) out[w] = at + w < x.words ? row[at + w] : 0;
}

// 32 codes as signed bytes. Unsigned bytes have 128 subtracted.
template <int kBits>
struct ByteChunk {
  static constexpr int kCodes = 32;
  uint32_t bytes[8];

  BITGRAD_DEVICE void load(const SimtSide& x, int64_t row, int64_t chunk) {
    uint32_t words[kBits];
    load_words(x, x.data + row * x.stride, chunk * kBits, words);
    if constexpr (kBits == 8) {
      BITGRAD_UNROLL
      for (int i = 0; i < 8; ++i) bytes[i] = words[i] ^ (x.form == NumberForm::kUnsigned ? 0x80808080u : 0u);
    } else {
      const ByteRule rule = byte_rule(kBits, x.form);
      BITGRAD_UNROLL
      for (int i = 0; i < 8; ++i) bytes[i] = unpack4<kBits>(words, 4 * i, rule);
    }
  }
  BITGRAD_DEVICE void mask(int64_t valid) {
    BITGRAD_UNROLL
    for (int i = 0; i < 8; ++i) bytes[i] &= first_elements(valid - 4 * i, 8);
  }
  BITGRAD_DEVICE int total(const SimtSide&) const {
    int sum = 0;
    BITGRAD_UNROLL
    for (int i = 0; i < 8; ++i) sum = __dp4a(static_cast<int>(bytes[i]), 0x01010101, sum);
    return sum;
  }
};
template <int kBitsA, int kBitsB>
BITGRAD_DEVICE inline int dot(const SimtArgs&, const ByteChunk<kBitsA>& a, const ByteChunk<kBitsB>& b) {
  int sum = 0;
  BITGRAD_UNROLL
  for (int i = 0; i < 8; ++i) sum = __dp4a(static_cast<int>(a.bytes[i]), static_cast<int>(b.bytes[i]), sum);
  return sum;
}

// Packs the bits of x at even positions together.
BITGRAD_HD constexpr uint32_t even_bits(uint64_t x) {
  x &= 0x5555555555555555u;
  x = (x | (x >> 1)) & 0x3333333333333333u;
  x = (x | (x >> 2)) & 0x0F0F0F0F0F0F0F0Fu;
  x = (x | (x >> 4)) & 0x00FF00FF00FF00FFu;
  x = (x | (x >> 8)) & 0x0000FFFF0000FFFFu;
  return static_cast<uint32_t>(x | (x >> 16));
}

// 64 codes as bit planes.
template <int kBits>
struct BitChunk {
  static constexpr int kCodes = 64;
  uint64_t plane[kBits];

  BITGRAD_DEVICE void load(const SimtSide& x, int64_t row, int64_t chunk) {
    uint32_t words[2 * kBits];
    load_words(x, x.data + row * x.stride, chunk * 2 * kBits, words);
    if constexpr (kBits == 1) {
      plane[0] = words[0] | (uint64_t{words[1]} << 32);
    } else {
      const uint64_t low = words[0] | (uint64_t{words[1]} << 32), high = words[2] | (uint64_t{words[3]} << 32);
      plane[0] = even_bits(low) | (uint64_t{even_bits(high)} << 32);
      plane[1] = even_bits(low >> 1) | (uint64_t{even_bits(high >> 1)} << 32);
    }
  }
  BITGRAD_DEVICE void mask(int64_t valid) {
    const uint64_t keep = valid >= 64 ? ~uint64_t{0} : (uint64_t{1} << valid) - 1;
    BITGRAD_UNROLL
    for (int p = 0; p < kBits; ++p) plane[p] &= keep;
  }
  BITGRAD_DEVICE int total(const SimtSide& x) const {
    int sum = 0;
    BITGRAD_UNROLL
    for (int p = 0; p < kBits; ++p) sum += x.weight[p] * __popcll(plane[p]);
    return sum;
  }
};
template <int kBitsA, int kBitsB>
BITGRAD_DEVICE inline int dot(const SimtArgs& args, const BitChunk<kBitsA>& a, const BitChunk<kBitsB>& b) {
  int sum = 0;
  BITGRAD_UNROLL
  for (int p = 0; p < kBitsA; ++p) {
    BITGRAD_UNROLL
    for (int q = 0; q < kBitsB; ++q) sum += args.a.weight[p] * args.b.weight[q] * __popcll(a.plane[p] & b.plane[q]);
  }
  return sum;
}

BITGRAD_DEVICE inline int warp_sum(int x) {
  BITGRAD_UNROLL
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
  return x;
}

// Sums of one lane, later one warp, for four rows and a column.
struct SimtSums {
  int sum[kSimtRows] = {}, sum_a[kSimtRows] = {}, sum_b = 0;
};

template <typename ChunkA, typename ChunkB>
BITGRAD_DEVICE SimtSums simt_sums(const SimtArgs& args, int64_t i0, int64_t j, int part) {
  constexpr int kCodes = ChunkA::kCodes;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t k = args.out.k, chunks = (k + kCodes - 1) / kCodes;
  SimtSums sums;
  for (int64_t chunk = lane + 32 * part; chunk < chunks; chunk += 32 * args.split) {
    ChunkB b;
    b.load(args.b, j, chunk);
    const int64_t left = k - chunk * kCodes;
    if (left < kCodes) b.mask(left);
    if (args.sum_b) sums.sum_b += b.total(args.b);
    BITGRAD_UNROLL
    for (int m = 0; m < kSimtRows; ++m) {
      if (i0 + m >= args.out.m) continue;
      ChunkA a;
      a.load(args.a, i0 + m, chunk);
      if (left < kCodes) a.mask(left);
      sums.sum[m] += dot(args, a, b);
      if (args.sum_a) sums.sum_a[m] += a.total(args.a);
    }
  }
  BITGRAD_UNROLL
  for (int m = 0; m < kSimtRows; ++m) {
    sums.sum[m] = warp_sum(sums.sum[m]);
    if (args.sum_a) sums.sum_a[m] = warp_sum(sums.sum_a[m]);
  }
  if (args.sum_b) sums.sum_b = warp_sum(sums.sum_b);
  return sums;
}

template <typename ChunkA, typename ChunkB>
BITGRAD_DEVICE void run_simt(const SimtArgs& args) {
  constexpr int kWarps = kSimtThreads / 32, kWidth = 2 * kSimtRows + 1;
  __shared__ int parts[kWarps][kWidth];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t i0 = int64_t{blockIdx.y} * kSimtRows;
  const int64_t j = int64_t{blockIdx.x} * (kWarps / args.split) + warp / args.split;
  if (j < args.out.n) {
    const SimtSums sums = simt_sums<ChunkA, ChunkB>(args, i0, j, warp % args.split);
    if (lane == 0) {
      BITGRAD_UNROLL
      for (int m = 0; m < kSimtRows; ++m) {
        parts[warp][m] = sums.sum[m];
        parts[warp][kSimtRows + m] = sums.sum_a[m];
      }
      parts[warp][kWidth - 1] = sums.sum_b;
    }
  }
  __syncthreads();
  if (warp % args.split != 0 || j >= args.out.n || lane >= kSimtRows || i0 + lane >= args.out.m) return;
  int sum = 0, sum_a = 0, sum_b = 0;
  for (int w = warp; w < warp + args.split; ++w) {
    sum += parts[w][lane];
    sum_a += parts[w][kSimtRows + lane];
    sum_b += parts[w][kWidth - 1];
  }
  const int64_t k = args.out.k, shift_a = args.a.shift, shift_b = args.b.shift;
  const int64_t exact = sum + shift_b * sum_a + shift_a * sum_b + shift_a * shift_b * k;
  if (args.simple) return store_plain(args.out, args.pa, args.pb, i0 + lane, j, exact);
  store_sums(args.out, args.pa, args.pb, i0 + lane, j, exact, sum_a + shift_a * k, sum_b + shift_b * k);
}

// Bytes times codes of 1 .. 8 bits for few rows, by dp4a.
#define BITGRAD_WEIGHT_BITS(bits)                                                                  \
  BITGRAD_GLOBAL void __launch_bounds__(kSimtThreads) gemm_s8_w##bits##_dp4a_simt(SimtArgs args) { \
    run_simt<ByteChunk<8>, ByteChunk<bits>>(args);                                                 \
  }
#include "cuda/kernels/gemm/weight_bits.inc"
BITGRAD_WEIGHT_BITS(8)
#undef BITGRAD_WEIGHT_BITS

// Codes of one or two bits on both sides for few rows, by popc.
#define BITGRAD_SIMT_BITS(name, a, b) \
  BITGRAD_GLOBAL void __launch_bounds__(kSimtThreads) name(SimtArgs args) { run_simt<BitChunk<a>, BitChunk<b>>(args); }
BITGRAD_SIMT_BITS(gemm_b1_b1_popc_simt, 1, 1)
BITGRAD_SIMT_BITS(gemm_b1_b2_popc_simt, 1, 2)
BITGRAD_SIMT_BITS(gemm_b2_b1_popc_simt, 2, 1)
BITGRAD_SIMT_BITS(gemm_b2_b2_popc_simt, 2, 2)
#undef BITGRAD_SIMT_BITS

}  // namespace bitgrad::cuda::gemm
