// A 128 x 128 tile of an integer product by mma.sync, for all operand pairs that end up as bytes or bits.
//
// Each of eight warps computes 64 x 32. Shared memory contains four stages of 64 bytes of k (64 byte codes, or 512
// bits) of both sides, filled by cp.async three stages ahead. Operands in other orders or widths are transposed or
// expanded to bytes through registers. B may stay packed in shared memory and is unpacked to bytes in registers. Pairs
// of planes run over k one after the other by descending weight; at each change the sums so far are multiplied by the
// ratio of weights (Horner's scheme). Rows contain garbage past k, so A is masked in the last stage (and B, whose sums
// may be needed).
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/device/mma.h"
#include "cuda/kernels/gemm/mma/args.h"
#include "cuda/kernels/gemm/unpack.h"

namespace bitgrad::cuda::gemm {

template <bool kUnsignedA, bool kUnsignedB>
struct ByteOp {
  static constexpr int kUnit = 8;
  static BITGRAD_DEVICE void multiply(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma::multiply_bytes<kUnsignedA, kUnsignedB>(d, a, b);
  }
  template <bool kUnsigned>
  static BITGRAD_DEVICE int total(uint32_t x) {
    return kUnsigned ? static_cast<int>(__dp4a(x, 0x01010101u, 0u)) : __dp4a(static_cast<int>(x), 0x01010101, 0);
  }
  static BITGRAD_DEVICE int total_a(uint32_t x) { return total<kUnsignedA>(x); }
  static BITGRAD_DEVICE int total_b(uint32_t x) { return total<kUnsignedB>(x); }
};
struct BitOp {
  static constexpr int kUnit = 1;
  static BITGRAD_DEVICE void multiply(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma::multiply_bits(d, a, b);
  }
  static BITGRAD_DEVICE int total_a(uint32_t x) { return __popc(x); }
  static BITGRAD_DEVICE int total_b(uint32_t x) { return __popc(x); }
};

// Copies bytes [at, at + 64) of rows [f0, f0 + 128) of one plane to a stage.
BITGRAD_DEVICE inline void copy_bytes(mma::AsyncCopies& copies, const MmaSide& x, int64_t f0, int plane, int64_t at,
                                      uint8_t* stage) {
  // not unrolled: registers
  BITGRAD_NO_UNROLL
  for (int i = 0; i < kMmaTile * 4 / kMmaThreads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kMmaThreads, row = index / 4, chunk = index % 4;
    int64_t left = f0 + row < x.free ? x.row_bytes - at - 16 * chunk : 0;
    left = left < 0 ? 0 : left > 16 ? 16 : left;
    const int valid = static_cast<int>(left);
    const uint8_t* from =
        valid == 0 ? x.data : x.data + plane * x.plane_stride + (f0 + row) * x.stride + at + 16 * chunk;
    uint8_t* to = stage + mma::swizzle64(row, chunk);
    if (x.aligned16) {
      copies.copy<16>(to, from, valid);
    } else {
      copies.copy<8>(to, from, valid < 8 ? valid : 8);
      copies.copy<8>(to + 8, valid <= 8 ? x.data : from + 8, valid <= 8 ? 0 : valid - 8);
    }
  }
}

// Expands codes k0 .. k0 + 63 of rows [f0, f0 + 128) to bytes, with zeros beyond the operand. For operands stored [k,
// free] the lanes of a warp read adjacent elements.
BITGRAD_DEVICE inline void expand_bytes(const MmaSide& x, int64_t f0, int64_t k0, int64_t k_end, uint8_t* stage) {
  BITGRAD_NO_UNROLL
  for (int i = 0; i < kMmaTile * 4 / kMmaThreads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kMmaThreads;
    const int row = x.k_major ? index % kMmaTile : index / 4, chunk = x.k_major ? index / kMmaTile : index % 4;
    const int64_t f = f0 + row, k = k0 + 16 * chunk;
    uint32_t words[4] = {};
    BITGRAD_UNROLL
    for (int j = 0; j < 16; ++j) {
      if (f >= x.free || k + j >= k_end) continue;
      const uint8_t* stored = x.data + (x.k_major ? k + j : f) * x.stride;
      const int64_t at = x.k_major ? f : k + j;
      const uint32_t raw = x.bits == 8 ? stored[at] : raw_code(stored, at, x.bits);
      words[j / 4] |= (static_cast<uint32_t>(code_number(raw, x.bits, x.form)) & 255u) << (8 * (j % 4));
    }
    *reinterpret_cast<uint4*>(stage + mma::swizzle64(row, chunk)) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Transposes 4 x 4 bytes: byte i of out[j] is byte j of in[i].
BITGRAD_DEVICE inline void turn_words(const uint32_t (&in)[4], uint32_t (&out)[4]) {
  const uint32_t low01 = __byte_perm(in[0], in[1], 0x5140), high01 = __byte_perm(in[0], in[1], 0x7362);
  const uint32_t low23 = __byte_perm(in[2], in[3], 0x5140), high23 = __byte_perm(in[2], in[3], 0x7362);
  out[0] = __byte_perm(low01, low23, 0x5410);
  out[1] = __byte_perm(low01, low23, 0x7632);
  out[2] = __byte_perm(high01, high23, 0x5410);
  out[3] = __byte_perm(high01, high23, 0x7632);
}

// Same as expand_bytes, for bytes stored [k, free]: transposes 4 x 4 blocks in registers. A warp reads 32 bytes of each
// of 16 rows; its stores have four-way bank conflicts.
BITGRAD_DEVICE inline void turn_bytes(const MmaSide& x, int64_t f0, int64_t k0, int64_t k_end, uint8_t* stage) {
  BITGRAD_NO_UNROLL
  for (int i = 0; i < kMmaTile * kMmaStageBytes / 16 / kMmaThreads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kMmaThreads;
    const int row = 4 * (index % 8 + index / 32 % 4 * 8), byte = 4 * (index / 8 % 4 + index / 128 * 4);
    const uint8_t* const from = x.data + (k0 + byte) * x.stride + f0 + row;
    uint32_t in[4], out[4];
    BITGRAD_UNROLL
    for (int j = 0; j < 4; ++j)
      in[j] = f0 + row < x.free && k0 + byte + j < k_end ? *reinterpret_cast<const uint32_t*>(from + j * x.stride) : 0;
    turn_words(in, out);
    BITGRAD_UNROLL
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<uint32_t*>(stage + mma::swizzle64(row + j, byte / 16) + byte % 16) = out[j];
  }
}

BITGRAD_DEVICE inline void make_bytes(const MmaSide& x, int64_t f0, int64_t k0, int64_t k_end, uint8_t* stage) {
  if (x.words)
    turn_bytes(x, f0, k0, k_end, stage);
  else
    expand_bytes(x, f0, k0, k_end, stage);
}

// Copies 64 packed codes of rows [f0, f0 + 128): 8 * kBits bytes per row.
template <int kBits>
BITGRAD_DEVICE void copy_packed(mma::AsyncCopies& copies, const MmaSide& x, int64_t f0, int64_t at, uint8_t* stage) {
  for (int index = static_cast<int>(threadIdx.x); index < kMmaTile * kBits; index += kMmaThreads) {
    const int row = index / kBits, chunk = index % kBits;
    const bool inside = f0 + row < x.free && at + 8 * chunk < x.row_bytes;
    copies.copy<8>(stage + row * 8 * kBits + 8 * chunk,
                   inside ? x.data + (f0 + row) * x.stride + at + 8 * chunk : x.data, inside ? 8 : 0);
  }
}

// Tiles per column of C. The blocks of a grid run down the columns.
BITGRAD_DEVICE inline unsigned blocks_down(const MmaArgs& args) {
  return static_cast<unsigned>((args.out.m + kMmaTile - 1) / kMmaTile);
}

// kBitsB is the width of packed codes, or 0 if B is bytes or bits in shared memory.
template <typename Op, int kBitsB>
class MmaBlock {
 public:
  BITGRAD_DEVICE explicit MmaBlock(const MmaArgs& args)
      : args_(args),
        shared_(dynamic_shared<uint8_t>()),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_row_(static_cast<int>(threadIdx.x) / 32 / 4 * 64),
        warp_column_(static_cast<int>(threadIdx.x) / 32 % 4 * 32),
        i0_(int64_t{blockIdx.x % blocks_down(args)} * kMmaTile),
        j0_(int64_t{blockIdx.x / blocks_down(args)} * kMmaTile),
        steps_(static_cast<int>((args.out.k + kElements - 1) / kElements)) {}

  BITGRAD_DEVICE void run() {
    const int total = steps_ * args_.pairs;
    BITGRAD_NO_UNROLL
    for (int s = 0; s < kMmaStages - 1; ++s) fill(s, total);
    for (int step = 0; step < total; ++step) {
      copies_.wait<kMmaStages - 2>();
      __syncthreads();
      fill(step + kMmaStages - 1, total);
      multiply(step);
    }
    copies_.wait<0>();
    finish();
  }

 private:
  static constexpr int kElements = kMmaStageBytes * 8 / Op::kUnit;  // elements of k in a stage
  static constexpr int kPerByte = 8 / Op::kUnit;
  static constexpr int kStageA = kMmaTile * kMmaStageBytes, kRowB = kBitsB == 0 ? kMmaStageBytes : 8 * kBitsB;
  static constexpr int kStageB = kMmaTile * kRowB;

  BITGRAD_DEVICE uint8_t* stage_a(int step) const { return shared_ + step % kMmaStages * kStageA; }
  BITGRAD_DEVICE uint8_t* stage_b(int step) const {
    return shared_ + kMmaStages * kStageA + step % kMmaStages * kStageB;
  }

  BITGRAD_DEVICE void fill(int step, int total) {
    if (step < total) {
      const MmaPair& pair = args_.pair[step / steps_];
      const int64_t k0 = static_cast<int64_t>(step % steps_) * kElements;
      if (args_.a.expand)
        make_bytes(args_.a, i0_, k0, args_.out.k, stage_a(step));
      else
        copy_bytes(copies_, args_.a, i0_, pair.plane_a, k0 / kPerByte, stage_a(step));
      if constexpr (kBitsB != 0)
        copy_packed<kBitsB>(copies_, args_.b, j0_, k0 / 8 * kBitsB, stage_b(step));
      else if (args_.b.expand)
        make_bytes(args_.b, j0_, k0, args_.out.k, stage_b(step));
      else
        copy_bytes(copies_, args_.b, j0_, pair.plane_b, k0 / kPerByte, stage_b(step));
    }
    copies_.commit();
  }

  // Loads the fragments of four groups of 8 columns, at byte 32 * half of the stage.
  BITGRAD_DEVICE void load_b(const uint8_t* stage, int half, uint32_t (&b)[4][2]) const {
    if constexpr (kBitsB == 0) {
      BITGRAD_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        uint32_t words[4];
        const int row = warp_column_ + 16 * pair + mma::load_b_column(lane_);
        mma::load_matrices(words, stage + mma::swizzle64(row, 2 * half + mma::load_b_chunk(lane_)));
        b[2 * pair][0] = words[0];
        b[2 * pair][1] = words[1];
        b[2 * pair + 1][0] = words[2];
        b[2 * pair + 1][1] = words[3];
      }
    } else {
      const ByteRule rule = byte_rule(kBitsB, args_.b.form);
      BITGRAD_UNROLL
      for (int n = 0; n < 4; ++n) {
        const auto* words =
            reinterpret_cast<const uint32_t*>(stage + (warp_column_ + 8 * n + mma::b_column(lane_, 0)) * kRowB);
        BITGRAD_UNROLL
        for (int r = 0; r < 2; ++r) b[n][r] = unpack4<kBitsB>(words, 32 * half + mma::b_byte(lane_, r), rule);
      }
    }
  }

  // Zeros elements past the end of k in fragments whose first byte is element `k`.
  BITGRAD_DEVICE void mask(int64_t k, uint32_t (&a)[4][4], uint32_t (&b)[4][2]) const {
    const int64_t left = args_.out.k - k;
    BITGRAD_UNROLL
    for (int r = 0; r < 4; ++r) {
      const uint32_t keep = first_elements(left - mma::a_byte(lane_, r) * kPerByte, Op::kUnit);
      BITGRAD_UNROLL
      for (int m = 0; m < 4; ++m) a[m][r] &= keep;
    }
    BITGRAD_UNROLL
    for (int r = 0; r < 2; ++r) {
      const uint32_t keep = first_elements(left - mma::b_byte(lane_, r) * kPerByte, Op::kUnit);
      BITGRAD_UNROLL
      for (int n = 0; n < 4; ++n) b[n][r] &= keep;
    }
  }

  BITGRAD_DEVICE void add_sums(const MmaPair& pair, const uint32_t (&a)[4][4], const uint32_t (&b)[4][2]) {
    if (args_.sum_a && pair.weight_a != 0) {
      BITGRAD_UNROLL
      for (int m = 0; m < 4; ++m) {
        BITGRAD_UNROLL
        for (int r = 0; r < 4; ++r) sum_a_[m][r % 2] += pair.weight_a * Op::total_a(a[m][r]);
      }
    }
    if (args_.sum_b && pair.weight_b != 0) {
      BITGRAD_UNROLL
      for (int n = 0; n < 4; ++n) sum_b_[n] += pair.weight_b * (Op::total_b(b[n][0]) + Op::total_b(b[n][1]));
    }
  }

  BITGRAD_DEVICE void multiply(int step) {
    const MmaPair& pair = args_.pair[step / steps_];
    const int64_t k0 = static_cast<int64_t>(step % steps_) * kElements;
    if (k0 == 0 && step > 0) {
      BITGRAD_UNROLL
      for (int m = 0; m < 4; ++m) {
        BITGRAD_UNROLL
        for (int n = 0; n < 4; ++n) {
          BITGRAD_UNROLL
          for (int r = 0; r < 4; ++r) sum_[m][n][r] *= pair.before;
        }
      }
    }
    BITGRAD_UNROLL
    for (int half = 0; half < 2; ++half) {
      uint32_t a[4][4], b[4][2];
      BITGRAD_UNROLL
      for (int m = 0; m < 4; ++m) {
        const int row = warp_row_ + 16 * m + mma::load_a_row(lane_);
        mma::load_matrices(a[m], stage_a(step) + mma::swizzle64(row, 2 * half + mma::load_a_chunk(lane_)));
      }
      load_b(stage_b(step), half, b);
      if (k0 + kElements > args_.out.k) mask(k0 + half * (kElements / 2), a, b);
      add_sums(pair, a, b);
      BITGRAD_UNROLL
      for (int m = 0; m < 4; ++m) {
        BITGRAD_UNROLL
        for (int n = 0; n < 4; ++n) Op::multiply(sum_[m][n], a[m], b[n]);
      }
    }
  }

  // Writes all sums to shared memory, in place of the stages, so that the epilogue is a single loop over adjacent
  // elements of C.
  BITGRAD_DEVICE void put_sums(int* sums, int* rows, int* columns) {
    constexpr unsigned kAll = 0xFFFFFFFFu;
    BITGRAD_UNROLL
    for (int m = 0; m < 4; ++m) {
      BITGRAD_UNROLL
      for (int n = 0; n < 4; ++n) {
        BITGRAD_UNROLL
        for (int r = 0; r < 4; ++r) {
          const int row = warp_row_ + 16 * m + mma::d_row(lane_, r);
          sums[row * kMmaTile + warp_column_ + 8 * n + mma::d_column(lane_, r)] = sum_[m][n][r];
        }
      }
      BITGRAD_UNROLL
      for (int h = 0; h < 2; ++h) {
        sum_a_[m][h] += __shfl_xor_sync(kAll, sum_a_[m][h], 1);
        sum_a_[m][h] += __shfl_xor_sync(kAll, sum_a_[m][h], 2);
        if (warp_column_ == 0 && lane_ % 4 == 0) rows[warp_row_ + 16 * m + mma::a_row(lane_, h)] = sum_a_[m][h];
      }
      sum_b_[m] += __shfl_xor_sync(kAll, sum_b_[m], 1);
      sum_b_[m] += __shfl_xor_sync(kAll, sum_b_[m], 2);
      if (warp_row_ == 0 && lane_ % 4 == 0) columns[warp_column_ + 8 * m + mma::b_column(lane_, 0)] = sum_b_[m];
    }
  }

  BITGRAD_DEVICE void finish() {
    int* sums = reinterpret_cast<int*>(shared_);
    int *rows = sums + kMmaTile * kMmaTile, *columns = rows + kMmaTile;
    __syncthreads();
    put_sums(sums, rows, columns);
    __syncthreads();
    const Output& out = args_.out;
    BITGRAD_NO_UNROLL
    for (int e = static_cast<int>(threadIdx.x); e < kMmaTile * kMmaTile; e += kMmaThreads) {
      const int row = e / kMmaTile, column = e % kMmaTile;
      const int64_t i = i0_ + row, j = j0_ + column;
      if (i < out.m && j < out.n) store(i, j, sums[e], rows[row], columns[column]);
    }
  }

  BITGRAD_DEVICE void store(int64_t i, int64_t j, int sum, int sum_a, int sum_b) const {
    const int shift_a = args_.a.shift, shift_b = args_.b.shift, k = static_cast<int>(args_.out.k);
    // Computed modulo 2^32; the sum itself fits.
    const auto exact = static_cast<int>(static_cast<uint32_t>(sum) * static_cast<uint32_t>(args_.last_weight) +
                                        static_cast<uint32_t>(shift_b) * static_cast<uint32_t>(sum_a) +
                                        static_cast<uint32_t>(shift_a) * static_cast<uint32_t>(sum_b) +
                                        static_cast<uint32_t>(shift_a * shift_b) * static_cast<uint32_t>(k));
    if (args_.simple) return store_plain(args_.out, args_.pa, args_.pb, i, j, exact);
    store_sums(args_.out, args_.pa, args_.pb, i, j, exact, int64_t{sum_a} + int64_t{shift_a} * k,
               int64_t{sum_b} + int64_t{shift_b} * k);
  }

  const MmaArgs& args_;
  uint8_t* const shared_;
  const int lane_, warp_row_, warp_column_;
  const int64_t i0_, j0_;
  const int steps_;  // per pair of planes; an int, so that divisions by it are 32-bit
  mma::AsyncCopies copies_;
  int sum_[4][4][4] = {}, sum_a_[4][2] = {}, sum_b_[4] = {};
};

}  // namespace bitgrad::cuda::gemm
