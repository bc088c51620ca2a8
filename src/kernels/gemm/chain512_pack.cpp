#include "kernels/gemm/chain512_pack.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "kernels/gemm/chain512.h"
#include "kernels/gemm/common.h"
#include "kernels/gemm/float_operand.h"

namespace bitgrad::gemm_detail {
namespace {

typedef float Float4 __attribute__((vector_size(16), aligned(4), may_alias));

inline Float4 load4(const float* p) { return *reinterpret_cast<const Float4*>(p); }
inline void store4(float* p, Float4 v) { *reinterpret_cast<Float4*>(p) = v; }

// fp32 numbers in memory are the values themselves.
bool in_place(const StripBlock& block) {
  return block.x.dtype == dtypes::fp32 && block.k_scale == nullptr && (block.bare || block.x.scale.trivial());
}

// out[k * width + i] = rows[i][k], i < 4.
void transpose4(const float* const* rows, int64_t kc, int64_t width, float* out) {
  int64_t k = 0;
  for (; k + 4 <= kc; k += 4) {
    const Float4 a = load4(rows[0] + k), b = load4(rows[1] + k), c = load4(rows[2] + k), d = load4(rows[3] + k);
    const Float4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Float4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store4(out + (k + 0) * width, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store4(out + (k + 1) * width, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store4(out + (k + 2) * width, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store4(out + (k + 3) * width, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
  for (; k < kc; ++k)
    for (int i = 0; i < 4; ++i) out[k * width + i] = rows[i][k];
}

// Stored [free, k]: four rows at a time.
void pack_free_major(const StripBlock& block, int64_t width, float* out) {
  static constexpr float kZeros[kChainPanel] = {};
  const int64_t kc = block.kc;
  float values[4][kChainPanel];
  for (int64_t s = 0; s < block.nf; s += width, out += width * kc) {
    for (int64_t j = 0; j < width; j += 4) {
      const float* rows[4];
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t f = s + j + i;
        if (j + i >= width || f >= block.nf) {
          rows[i] = kZeros;
        } else if (in_place(block)) {
          rows[i] = reinterpret_cast<const float*>(stored_row(block.x, block.f0 + f)) + block.k0;
        } else {
          read_values(block.x, block.f0 + f, block.k0, kc, block.bare, values[i]);
          if (block.k_scale != nullptr)
            for (int64_t k = 0; k < kc; ++k) values[i][k] *= block.k_scale[k];
          rows[i] = values[i];
        }
      }
      if (j + 4 <= width) {
        transpose4(rows, kc, width, out + j);
      } else {
        for (int64_t k = 0; k < kc; ++k)
          for (int64_t i = 0; j + i < width; ++i) out[k * width + j + i] = rows[i][k];
      }
    }
  }
}

// Stored [k, free]: one row of the store is one row of every strip.
void pack_k_major(const StripBlock& block, int64_t width, float* out) {
  constexpr int64_t kPiece = 1536;  // elements read at a time: whole strips
  float values[kPiece];
  const int64_t piece = kPiece / width * width;
  for (int64_t f = 0; f < block.nf; f += piece) {
    const int64_t count = std::min(piece, block.nf - f);
    for (int64_t k = 0; k < block.kc; ++k) {
      const float* row = values;
      if (in_place(block)) {
        row = reinterpret_cast<const float*>(stored_row(block.x, block.k0 + k)) + block.f0 + f;
      } else {
        read_values(block.x, block.k0 + k, block.f0 + f, count, block.bare, values);
        if (block.k_scale != nullptr)
          for (int64_t j = 0; j < count; ++j) values[j] *= block.k_scale[k];
      }
      for (int64_t s = 0; s < count; s += width) {
        float* to = out + (f + s) * block.kc + k * width;
        const int64_t w = std::min(width, count - s);
        int64_t j = 0;
        for (; j + 4 <= w; j += 4) store4(to + j, load4(row + s + j));
        for (; j < w; ++j) to[j] = row[s + j];
        for (; j < width; ++j) to[j] = 0.0f;
      }
    }
  }
}

}  // namespace

void pack_strips(const StripBlock& block, int64_t width, float* out) {
  ensure(block.kc <= kChainPanel && width <= kMaxNr, "pack_strips", "block too large: got kc ", block.kc, ", width ", width, '.');
  block.x.k_major ? pack_k_major(block, width, out) : pack_free_major(block, width, out);
}

double pack_ns_per_element(const GemmOperand& x) {
  const double transpose = x.k_major ? 0.12 : 0.25;
  const double scales = x.scale.trivial() ? 0.0 : 0.15;
  const double expand = x.dtype == dtypes::fp32 ? 0.0 : (x.dtype.is_code() && x.dtype.bits() <= 2 ? 0.15 : 0.4);
  return transpose + scales + expand;
}

}  // namespace bitgrad::gemm_detail
