// A 128 x 128 tile of a product of floats and codes by mma.sync on bf16, with fp32 sums.
//
// Shared memory contains both operands as stored, filled by cp.async two steps ahead. In half-step s, lane l processes
// the indices k = 8 (l % 4) + 4 s + i, i < 4: four adjacent elements of either operand, placed in the same fragment
// slots of both. In registers codes become bf16, and A's values bf16 parts. For operands stored [k, free] a thread has
// four adjacent rows (columns) of the tile, so that it loads whole words. A is zero-filled past k.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/device/vectors.h"
#include "cuda/kernels/gemm/mma/bf16_codes.h"
#include "cuda/kernels/gemm/mma/float_args.h"

namespace bitgrad::cuda::gemm {

// Copies bytes [byte0, byte0 + kRowBytes) of rows [r0, r0 + kRows), at most `width` bytes per row, to stage +
// place(row, byte). Zero-fills beyond the operand.
template <int kUnit, int kRows, int kRowBytes, typename Place>
BITGRAD_DEVICE void copy_units(mma::AsyncCopies& copies, const FloatRows& x, int r0, int64_t byte0, int width,
                               uint8_t* stage, Place place) {
  constexpr int kUnits = kRowBytes / kUnit;
  BITGRAD_NO_UNROLL
  for (int index = static_cast<int>(threadIdx.x); index < kRows * kUnits; index += kFloatThreads) {
    const int row = index / kUnits, at = index % kUnits * kUnit;
    if (at >= width) continue;
    int64_t left = r0 + row < x.rows ? x.row_bytes - byte0 - at : 0;
    left = left < 0 ? 0 : left > kUnit ? kUnit : left;
    const uint8_t* from = left == 0 ? x.data : x.data + (r0 + row) * x.stride + byte0 + at;
    if constexpr (kUnit == 2)
      *reinterpret_cast<uint16_t*>(stage + place(row, at)) =
          left == 0 ? uint16_t{0} : *reinterpret_cast<const uint16_t*>(from);
    else
      copies.copy<kUnit>(stage + place(row, at), from, static_cast<int>(left));
  }
}
template <int kRows, int kRowBytes, typename Place>
BITGRAD_DEVICE void copy_rows(mma::AsyncCopies& copies, const FloatRows& x, int r0, int64_t byte0, int width,
                              uint8_t* stage, Place place) {
  if constexpr (kRowBytes % 16 == 0) {
    if (x.unit == 16) return copy_units<16, kRows, kRowBytes>(copies, x, r0, byte0, width, stage, place);
  }
  if (x.unit >= 4) return copy_units<4, kRows, kRowBytes>(copies, x, r0, byte0, width, stage, place);
  copy_units<2, kRows, kRowBytes>(copies, x, r0, byte0, width, stage, place);
}

// Shared memory of a step. For operands stored [k, free], each group of eight rows is followed by 32 bytes of padding,
// so that the four lanes that share a column of the tile access different banks.
template <int kParts, int kBits, bool kTurnedA, bool kTurnedB>
struct FloatStage {
  static constexpr int kSizeA = kParts == 1 ? 2 : 4;
  static constexpr int kRowA = (kTurnedA ? kFloatTile : kFloatStep) * kSizeA;
  static constexpr int kRowB = (kTurnedB ? kFloatTile : kFloatStep) * kBits / 8;
  static constexpr int kBytesA = kFloatTile * kFloatStep * kSizeA + (kTurnedA ? 128 : 0);
  static constexpr int kBytesB = kFloatTile * kFloatStep * kBits / 8 + (kTurnedB ? 128 : 0);
  static constexpr int kFoldAt = kBytesA + kBytesB;
  static constexpr int kBytes = float_step_bytes(kParts == 1, kBits, kTurnedA, kTurnedB);

  static BITGRAD_HD constexpr int place_a(int row, int byte) {
    return row * kRowA + (kTurnedA ? row / 8 * 32 + byte : byte ^ (row & 1) << 4);
  }
  static BITGRAD_HD constexpr int place_b(int row, int byte) {
    return row * kRowB + (kTurnedB ? row / 8 * 32 : 0) + byte;
  }
};

// Stores C[i, j .. j + 4), clipped at n.
BITGRAD_DEVICE inline void store_four(const Output& out, int64_t i, int64_t j, const float* y) {
  float* const c = static_cast<float*>(out.c) + i * out.ldc + j;
  if (out.form == OutputForm::kFp32 && !out.accumulate && j + 4 <= out.n && lies_on<4>(c)) {
    Pack<float, 4> four = load_pack<4>(y);
    BITGRAD_UNROLL
    for (int e = 0; e < 4; ++e)
      if (out.bias != nullptr) four.v[e] = four.v[e] + out.bias[j + e];
    return store_pack(c, four);
  }
  BITGRAD_NO_UNROLL
  for (int e = 0; e < 4; ++e)
    if (j + e < out.n) store_value(out, i, j + e, y[e]);
}

template <int kParts, int kBits, bool kTurnedA, bool kTurnedB, bool kGroups>
class FloatBlock {
  using Stage = FloatStage<kParts, kBits, kTurnedA, kTurnedB>;
  static constexpr int kDown = kParts == 1 ? 2 : 4, kAcross = 8 / kDown;  // grid of warps
  static constexpr int kM = kFloatTile / kDown / 16, kN = kFloatTile / kAcross / 8;
  static_assert(kParts == 1 || kFloatTile / kAcross == kFoldColumns);

 public:
  BITGRAD_DEVICE explicit FloatBlock(const FloatMmaArgs& args)
      : args_(args),
        shared_(dynamic_shared<uint8_t>()),
        rule_(bf16_rule(kBits, args.form)),
        group_(static_cast<int>(threadIdx.x) % 32 / 4),
        quarter_(static_cast<int>(threadIdx.x) % 4),
        warp_row_(static_cast<int>(threadIdx.x) / 32 / kAcross * (16 * kM)),
        warp_column_(static_cast<int>(threadIdx.x) / 32 % kAcross * (8 * kN)),
        i0_(static_cast<int>(blockIdx.x % down()) * kFloatTile),
        j0_(static_cast<int>(blockIdx.x / down()) * kFloatTile),
        steps_(static_cast<int>((args.out.k + kFloatStep - 1) / kFloatStep)) {}

  BITGRAD_DEVICE void run() {
    BITGRAD_NO_UNROLL
    for (int s = 0; s < kFloatStages - 1; ++s) fill(s);
    int left = args_.group_steps, k = 0;  // k: first index of the current group
    BITGRAD_NO_UNROLL
    for (int step = 0; step < steps_; ++step) {
      copies_.template wait<kFloatStages - 2>();
      __syncthreads();
      fill(step + kFloatStages - 1);
      BITGRAD_UNROLL
      for (int half = 0; half < 2; ++half) multiply(stage(step), half);
      if constexpr (kGroups) {
        if (--left > 0 && step + 1 < steps_) continue;
        add_group(k);
        left = args_.group_steps;
        k = (step + 1) * kFloatStep;
      }
    }
    copies_.template wait<0>();
    finish();
  }

 private:
  BITGRAD_DEVICE unsigned down() const { return static_cast<unsigned>((args_.out.m + kFloatTile - 1) / kFloatTile); }
  BITGRAD_DEVICE uint8_t* stage(int step) const { return shared_ + step % kFloatStages * Stage::kBytes; }
  // The tile row in register pair `half` of fragment m, and the tile column of `column` (0 .. 7) of fragment n.
  BITGRAD_DEVICE int row_of(int m, int half) const {
    return warp_row_ + (kTurnedA ? m / 2 * 32 + 4 * group_ + m % 2 * 2 + half : 16 * m + 8 * half + group_);
  }
  BITGRAD_DEVICE int column_of(int n, int column) const {
    return warp_column_ + (kTurnedB ? n / 4 * 32 + 4 * column + n % 4 : 8 * n + column);
  }

  BITGRAD_DEVICE void fill(int step) {
    if (step < steps_) {
      const int k0 = step * kFloatStep;
      uint8_t* const to = stage(step);
      const int size = args_.narrow ? 2 : 4, width = args_.narrow ? Stage::kRowA / Stage::kSizeA * 2 : Stage::kRowA;
      copy_rows<kTurnedA ? kFloatStep : kFloatTile, Stage::kRowA>(
          copies_, args_.a, kTurnedA ? k0 : i0_, int64_t{kTurnedA ? i0_ : k0} * size, width, to, Stage::place_a);
      copy_rows<kTurnedB ? kFloatStep : kFloatTile, Stage::kRowB>(copies_, args_.b, kTurnedB ? k0 : j0_,
                                                                  int64_t{kTurnedB ? j0_ : k0} / 8 * kBits,
                                                                  Stage::kRowB, to + Stage::kBytesA, Stage::place_b);
      if constexpr (kTurnedB && kParts == 3) copy_fold(k0, to + Stage::kFoldAt);
    }
    copies_.commit();
  }
  // Copies the scales of this step's k for each warp's columns.
  BITGRAD_DEVICE void copy_fold(int k0, uint8_t* to) {
    const int thread = static_cast<int>(threadIdx.x);
    if (!args_.fold || thread >= kFloatTile / kFoldColumns * kFloatStep) return;
    const int k = k0 + thread % kFloatStep, j = j0_ + thread / kFloatStep * kFoldColumns;
    const ScaleMap& map = args_.scale;
    const bool inside = k < args_.out.k && j < args_.out.n;
    const int64_t at = inside ? param_index(map, k, j) : 0;
    copies_.template copy<4>(to + 4 * thread, map.scale + at, inside ? 4 : 0);
  }

  // Loads four consecutive values of A.
  BITGRAD_DEVICE void load_numbers(const uint8_t* stage, int row, int first, float (&x)[4]) const {
    if (args_.narrow) {
      const uint2 w = *reinterpret_cast<const uint2*>(stage + Stage::place_a(row, 2 * first));
      x[0] = __uint_as_float(w.x << 16), x[1] = __uint_as_float(w.x & 0xFFFF0000u);
      x[2] = __uint_as_float(w.y << 16), x[3] = __uint_as_float(w.y & 0xFFFF0000u);
    } else {
      const uint4 w = *reinterpret_cast<const uint4*>(stage + Stage::place_a(row, 4 * first));
      x[0] = __uint_as_float(w.x), x[1] = __uint_as_float(w.y);
      x[2] = __uint_as_float(w.z), x[3] = __uint_as_float(w.w);
    }
  }
  // Splits four values of a row, consecutive in k, into registers half and 2 + half of each part's fragment.
  BITGRAD_DEVICE void put_parts(const float (&x)[4], int half, uint32_t (&a)[kParts][4]) const {
    uint32_t parts[4][3];
    BITGRAD_UNROLL
    for (int i = 0; i < 4; ++i) split_float(x[i], parts[i]);
    BITGRAD_UNROLL
    for (int p = 0; p < kParts; ++p) {
      a[p][half] = upper_halves(parts[0][p], parts[1][p]);
      a[p][2 + half] = upper_halves(parts[2][p], parts[3][p]);
    }
  }
  BITGRAD_DEVICE void load_fold(const uint8_t* stage, int k, float (&fold)[4]) const {
    BITGRAD_UNROLL
    for (int i = 0; i < 4; ++i) fold[i] = 1.0f;
    if constexpr (kTurnedB && kParts == 3) {
      if (!args_.fold) return;
      const uint8_t* at = stage + Stage::kFoldAt + (warp_column_ / kFoldColumns * kFloatStep + k) * 4;
      const uint4 w = *reinterpret_cast<const uint4*>(at);
      fold[0] = __uint_as_float(w.x), fold[1] = __uint_as_float(w.y);
      fold[2] = __uint_as_float(w.z), fold[3] = __uint_as_float(w.w);
    }
  }
  BITGRAD_DEVICE void load_a(const uint8_t* stage, int half_step, uint32_t (&a)[kM][kParts][4]) const {
    const int k = 8 * quarter_ + 4 * half_step;
    if constexpr (kParts == 1) {
      load_narrow_a(stage, k, a);
    } else {
      float fold[4];
      load_fold(stage, k, fold);
      BITGRAD_UNROLL
      for (int m = 0; m < kM; m += kTurnedA ? 2 : 1) {
        float x[4][4];  // transposed: [k][one of four rows]; else [half][k]
        BITGRAD_UNROLL
        for (int i = 0; i < (kTurnedA ? 4 : 2); ++i) {
          if constexpr (kTurnedA)
            load_numbers(stage, k + i, row_of(m, 0), x[i]);
          else
            load_numbers(stage, row_of(m, i), k, x[i]);
        }
        BITGRAD_UNROLL
        for (int r = 0; r < (kTurnedA ? 4 : 2); ++r) {
          float row[4];
          BITGRAD_UNROLL
          for (int i = 0; i < 4; ++i) row[i] = kTurnedA ? x[i][r] : x[r][i];
          if (kTurnedB && args_.fold) {
            BITGRAD_UNROLL
            for (int i = 0; i < 4; ++i) row[i] = row[i] * fold[i];
          }
          put_parts(row, r % 2, a[m + r / 2]);
        }
      }
    }
  }
  BITGRAD_DEVICE void load_narrow_a(const uint8_t* stage, int k, uint32_t (&a)[kM][kParts][4]) const {
    BITGRAD_UNROLL
    for (int m = 0; m < kM; m += kTurnedA ? 2 : 1) {
      if constexpr (kTurnedA) {
        uint2 w[4];
        BITGRAD_UNROLL
        for (int i = 0; i < 4; ++i)
          w[i] = *reinterpret_cast<const uint2*>(stage + Stage::place_a(k + i, 2 * row_of(m, 0)));
        BITGRAD_UNROLL
        for (int pair = 0; pair < 2; ++pair) {
          a[m][0][2 * pair] = lower_halves(w[2 * pair].x, w[2 * pair + 1].x);
          a[m][0][2 * pair + 1] = upper_halves(w[2 * pair].x, w[2 * pair + 1].x);
          a[m + 1][0][2 * pair] = lower_halves(w[2 * pair].y, w[2 * pair + 1].y);
          a[m + 1][0][2 * pair + 1] = upper_halves(w[2 * pair].y, w[2 * pair + 1].y);
        }
      } else {
        BITGRAD_UNROLL
        for (int half = 0; half < 2; ++half) {
          const uint2 w = *reinterpret_cast<const uint2*>(stage + Stage::place_a(row_of(m, half), 2 * k));
          a[m][0][half] = w.x;
          a[m][0][2 + half] = w.y;
        }
      }
    }
  }

  BITGRAD_DEVICE const uint32_t* row_b(const uint8_t* stage, int row) const {
    return reinterpret_cast<const uint32_t*>(stage + Stage::kBytesA + Stage::place_b(row, 0));
  }
  // Loads fragments n .. n + 3.
  BITGRAD_DEVICE void load_b(const uint8_t* stage, int half_step, int n, uint32_t (&b)[4][2]) const {
    const int k = 8 * quarter_ + 4 * half_step;
    if constexpr (kTurnedB) {
      uint32_t f[4];
      BITGRAD_UNROLL
      for (int i = 0; i < 4; ++i)
        f[i] = prepared<kBits>(fields4<kBits>(row_b(stage, k + i), column_of(n, group_)), rule_);
      BITGRAD_UNROLL
      for (int r = 0; r < 2; ++r) {
        const uint32_t low = __byte_perm(f[2 * r], f[2 * r + 1], 0x5140),
                       high = __byte_perm(f[2 * r], f[2 * r + 1], 0x7362);
        b[0][r] = pair_of<kBits, 0>(low, rule_);
        b[1][r] = pair_of<kBits, 1>(low, rule_);
        b[2][r] = pair_of<kBits, 0>(high, rule_);
        b[3][r] = pair_of<kBits, 1>(high, rule_);
      }
    } else {
      BITGRAD_UNROLL
      for (int j = 0; j < 4; ++j) {
        const uint32_t bytes = prepared<kBits>(fields4<kBits>(row_b(stage, column_of(n + j, group_)), k), rule_);
        b[j][0] = pair_of<kBits, 0>(bytes, rule_);
        b[j][1] = pair_of<kBits, 1>(bytes, rule_);
      }
    }
  }

  BITGRAD_DEVICE void multiply(const uint8_t* stage, int half_step) {
    uint32_t a[kM][kParts][4];
    load_a(stage, half_step, a);
    BITGRAD_UNROLL
    for (int n = 0; n < kN; n += 4) {
      uint32_t b[4][2];
      load_b(stage, half_step, n, b);
      // Smallest part first.
      BITGRAD_UNROLL
      for (int p = kParts - 1; p >= 0; --p) {
        BITGRAD_UNROLL
        for (int j = 0; j < 4; ++j) {
          BITGRAD_UNROLL
          for (int m = 0; m < kM; ++m) mma::multiply_bf16(sum_[m][n + j], a[m][p], b[j]);
        }
      }
    }
    if constexpr (kGroups) {
      if (args_.scale.zero == nullptr && args_.scale.offset == nullptr) return;
      const uint32_t ones[2] = {kBf16One, kBf16One};
      BITGRAD_UNROLL
      for (int p = kParts - 1; p >= 0; --p) {
        BITGRAD_UNROLL
        for (int m = 0; m < kM; ++m) mma::multiply_bf16(sum_a_[m], a[m][p], ones);
      }
    }
  }

  // Scales the sums of the group that starts at k and adds them to the totals.
  BITGRAD_DEVICE void add_group(int64_t k) {
    const ScaleMap& map = args_.scale;
    BITGRAD_UNROLL
    for (int n = 0; n < kN; ++n) {
      BITGRAD_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int64_t j = j0_ + column_of(n, 2 * quarter_ + e), last = args_.out.n - 1;
        const int64_t at = param_index(map, j < last ? j : last, k);
        const float scale = map.scale == nullptr ? 1.0f : map.scale[at];
        const float zero = map.zero == nullptr ? 0.0f : static_cast<float>(map.zero[at]);
        const float offset = map.offset == nullptr ? 0.0f : map.offset[at];
        BITGRAD_UNROLL
        for (int m = 0; m < kM; ++m) {
          BITGRAD_UNROLL
          for (int half = 0; half < 2; ++half) {
            const int r = 2 * half + e;
            float term = sum_[m][n][r];
            if (map.zero != nullptr) term = term - zero * sum_a_[m][r];
            term = term * scale;
            if (map.offset != nullptr) term = term + offset * sum_a_[m][r];
            total_[m][n][r] = total_[m][n][r] + term;
            sum_[m][n][r] = 0;
          }
        }
      }
    }
    BITGRAD_UNROLL
    for (int m = 0; m < kM; ++m) {
      BITGRAD_UNROLL
      for (int r = 0; r < 4; ++r) sum_a_[m][r] = 0;
    }
  }

  BITGRAD_DEVICE float scale_of(int64_t j) const {
    const ScaleMap& map = args_.scale;
    if (kGroups || !args_.on_sum || j >= args_.out.n) return 1.0f;
    return map.scale[kTurnedB ? param_index(map, 0, j) : param_index(map, j, 0)];
  }
  // Writes all sums to shared memory, in place of the steps, then stores four adjacent elements of a row of C at a
  // time.
  BITGRAD_DEVICE void finish() {
    float* const sums = reinterpret_cast<float*>(shared_);
    __syncthreads();
    BITGRAD_UNROLL
    for (int n = 0; n < kN; ++n) {
      BITGRAD_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int column = column_of(n, 2 * quarter_ + e);
        const float scale = scale_of(j0_ + column);
        BITGRAD_UNROLL
        for (int m = 0; m < kM; ++m) {
          BITGRAD_UNROLL
          for (int half = 0; half < 2; ++half) {
            const int r = 2 * half + e;
            sums[row_of(m, half) * kFloatPitch + column] = kGroups ? total_[m][n][r] : sum_[m][n][r] * scale;
          }
        }
      }
    }
    __syncthreads();
    BITGRAD_NO_UNROLL
    for (int e = static_cast<int>(threadIdx.x); e < kFloatTile * kFloatTile / 4; e += kFloatThreads) {
      const int row = e / (kFloatTile / 4), column = e % (kFloatTile / 4) * 4;
      const int64_t i = i0_ + row, j = j0_ + column;
      if (i < args_.out.m && j < args_.out.n) store_four(args_.out, i, j, sums + row * kFloatPitch + column);
    }
  }

  const FloatMmaArgs& args_;
  uint8_t* const shared_;
  const Bf16Rule rule_;
  const int group_, quarter_, warp_row_, warp_column_;
  const int i0_, j0_, steps_;
  mma::AsyncCopies copies_;
  float sum_[kM][kN][4] = {}, total_[kGroups ? kM : 1][kGroups ? kN : 1][4] = {}, sum_a_[kGroups ? kM : 1][4] = {};
};

}  // namespace bitgrad::cuda::gemm

// The kernels of one code width: values of A as one bf16 part (`bf16_blocks` blocks per SM), and as three. a, b: parts
// of their names; then whether A and B are stored turned, and whether B has groups.
#define BITGRAD_FLOAT_MMA(bits, a, b, bf16_blocks, ...)                                                            \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, bf16_blocks)                                                \
      gemm_bf16_##a##w##bits##b##_mma_sm80(FloatMmaArgs args) {                                                    \
    FloatBlock<1, bits, __VA_ARGS__>(args).run();                                                                  \
  }                                                                                                                \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, 1) gemm_f32_##a##w##bits##b##_mma_sm80(FloatMmaArgs args) { \
    FloatBlock<3, bits, __VA_ARGS__>(args).run();                                                                  \
  }
