#include "kernels/gemm/floats/chain512.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kPiece = 256;  // contracted indices packed at a time, so that a strip's part stays in L1

typedef float Float4 __attribute__((vector_size(16), aligned(4), may_alias));

inline Float4 load4(const float* p) { return *reinterpret_cast<const Float4*>(p); }
inline void store4(float* p, Float4 v) { *reinterpret_cast<Float4*>(p) = v; }

// Whether the values can be read in place: plain floats of one of these dtypes.
template <typename... DTypes>
bool in_place(const StripBlock& block, DTypes... dtypes) {
  return ((block.x.dtype == dtypes) || ...) && block.k_scale == nullptr && (block.bare || block.x.scale.trivial());
}

// out[k * width + i] = rows[i][k], i < 4.
void transpose4(const float* const* rows, int64_t kc, int64_t width, float* out) {
  int64_t k = 0;
  for (; k + 4 <= kc; k += 4) {
    const Float4 a = load4(rows[0] + k), b = load4(rows[1] + k), c = load4(rows[2] + k), d = load4(rows[3] + k);
    const Float4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Float4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store4(out + (k + 0) * width, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store4(out + (k + 1) * width, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store4(out + (k + 2) * width, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store4(out + (k + 3) * width, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
  for (; k < kc; ++k)
    for (int i = 0; i < 4; ++i) out[k * width + i] = rows[i][k];
}

// Packs one strip of `width` rows from f, contracted indices [k, k + count) of the block, R rows at a time.
template <int64_t R>
void pack_rows(const StripBlock& block, Transpose transpose, int64_t width, int64_t f, int64_t k, int64_t count,
               float* out) {
  static constexpr float kZeros[kPiece] = {};
  const bool direct = in_place(block, dtypes::fp32);
  float values[R][kPiece];
  for (int64_t j = 0; j < width; j += R) {
    const float* rows[R];
    for (int64_t i = 0; i < R; ++i) {
      const int64_t row = f + j + i;
      if (j + i >= width || row >= block.nf) {
        rows[i] = kZeros;
      } else if (direct) {
        rows[i] = reinterpret_cast<const float*>(stored_row(block.x, block.f0 + row)) + block.k0 + k;
      } else {
        read_values(block.x, block.f0 + row, block.k0 + k, count, block.bare, values[i]);
        if (block.k_scale != nullptr)
          for (int64_t t = 0; t < count; ++t) values[i][t] *= block.k_scale[k + t];
        rows[i] = values[i];
      }
    }
    if (j + R <= width) {
      transpose(rows, count, width, out + j);
    } else {
      for (int64_t t = 0; t < count; ++t)
        for (int64_t i = 0; j + i < width; ++i) out[t * width + j + i] = rows[i][t];
    }
  }
}

// The same for 16-bit floats without parameters, which are widened as they are transposed.
void pack_halves(const StripBlock& block, TransposeHalves transpose, int64_t width, int64_t f, int64_t k, int64_t count,
                 float* out) {
  static constexpr uint16_t kZeros[kPiece] = {};
  for (int64_t j = 0; j < width; j += 16) {
    const uint16_t* rows[16];
    for (int64_t i = 0; i < 16; ++i)
      rows[i] = f + j + i < block.nf
                    ? reinterpret_cast<const uint16_t*>(stored_row(block.x, block.f0 + f + j + i)) + block.k0 + k
                    : kZeros;
    transpose(rows, block.x.dtype == dtypes::bf16, count, width, out + j);
  }
}

// Prefetches the lines of codes that strip f reads: many short runs, which the hardware does not predict.
void prefetch_strip(const StripBlock& block, int64_t width, int64_t f) {
  constexpr int64_t kLine = 64;
  const int64_t bits = block.x.dtype.bits(), begin = block.k0 * bits / 8, end = (block.k0 + block.kc) * bits / 8;
  if (bits > 8) return;
  for (int64_t row = f; row < std::min(f + width, block.nf); ++row) {
    const uint8_t* codes = stored_row(block.x, block.f0 + row);
    for (int64_t at = begin; at < end; at += kLine) __builtin_prefetch(codes + at);
  }
}

// For storage as [free, k].
void pack_free_major(const StripBlock& block, int64_t width, float* out, Transpose transpose16,
                     TransposeHalves halves16) {
  const bool halves = halves16 != nullptr && width % 16 == 0 && in_place(block, dtypes::fp16, dtypes::bf16);
  const bool by_16 = transpose16 != nullptr && width % 16 == 0;
  const auto pack = by_16 ? pack_rows<16> : pack_rows<4>;
  const Transpose transpose = by_16 ? transpose16 : transpose4;
  for (int64_t f = 0; f < block.nf; f += width, out += width * block.kc) {
    prefetch_strip(block, width, f + width);
    for (int64_t k = 0; k < block.kc; k += kPiece) {
      const int64_t count = std::min(kPiece, block.kc - k);
      if (halves)
        pack_halves(block, halves16, width, f, k, count, out + k * width);
      else
        pack(block, transpose, width, f, k, count, out + k * width);
    }
  }
}

// Writes row k of every strip from `count` values. W: the width as a constant, so that whole strips are copied without
// a loop.
template <int64_t W>
void copy_to_strips(const float* row, int64_t count, int64_t kc, float* out) {
  for (int64_t s = 0; s < count; s += W, out += W * kc) {
    const int64_t w = std::min(W, count - s);
    if (w == W) {
#pragma GCC unroll 8
      for (int64_t j = 0; j + 4 <= W; j += 4) store4(out + j, load4(row + s + j));
#pragma GCC unroll 4
      for (int64_t j = W / 4 * 4; j < W; ++j) out[j] = row[s + j];
    } else {
      int64_t j = 0;
      for (; j + 4 <= w; j += 4) store4(out + j, load4(row + s + j));
      for (; j < w; ++j) out[j] = row[s + j];
      for (; j < W && j % 4 != 0; ++j) out[j] = 0.0f;
      for (; j + 4 <= W; j += 4) store4(out + j, Float4{});
      for (; j < W; ++j) out[j] = 0.0f;
    }
  }
}

// For storage as [k, free]: one stored row provides one row of every strip.
template <int64_t W>
void pack_k_major(const StripBlock& block, float* out) {
  constexpr int64_t kWhole = 1536 / W * W;  // values read at a time: whole strips
  const bool direct = in_place(block, dtypes::fp32);
  float values[kWhole];
  for (int64_t f = 0; f < block.nf; f += kWhole) {
    const int64_t count = std::min(kWhole, block.nf - f);
    for (int64_t k = 0; k < block.kc; ++k) {
      const float* row = values;
      if (direct) {
        row = reinterpret_cast<const float*>(stored_row(block.x, block.k0 + k)) + block.f0 + f;
      } else {
        read_values(block.x, block.k0 + k, block.f0 + f, count, block.bare, values);
        if (block.k_scale != nullptr)
          for (int64_t j = 0; j < count; ++j) values[j] *= block.k_scale[k];
      }
      copy_to_strips<W>(row, count, block.kc, out + f * block.kc + k * W);
    }
  }
}

// Dispatches over all widths that micro-kernels use.
struct KMajorPacker {
  int64_t width;
  void (*pack)(const StripBlock&, float*);
};
constexpr KMajorPacker kKMajorPackers[] = {{4, pack_k_major<4>},   {6, pack_k_major<6>},   {8, pack_k_major<8>},
                                           {12, pack_k_major<12>}, {16, pack_k_major<16>}, {32, pack_k_major<32>}};

}  // namespace

void pack_strips(const StripBlock& block, int64_t width, float* out, Transpose transpose16, TransposeHalves halves16) {
  if (!block.x.k_major) return pack_free_major(block, width, out, transpose16, halves16);
  for (const KMajorPacker& packer : kKMajorPackers)
    if (packer.width == width) return packer.pack(block, out);
  fail_with(ErrorCode::kBug, "pack_strips", "no packer for strips of width ", width, '.');
}

double pack_ns_per_element(const GemmOperand& x) {
  const double transpose = x.k_major ? 0.15 : 0.2;
  const double scales = x.scale.trivial() ? 0.0 : 0.1;
  const double expand = x.dtype == dtypes::fp32 ? 0.0 : (x.dtype.bits() <= 2 ? 0.06 : 0.25);
  return transpose + scales + expand;
}

}  // namespace bitgrad::kernels::gemm_detail
