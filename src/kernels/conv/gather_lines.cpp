// gather_line for AVX-512 with byte permutes (VBMI), which close the gaps between non-contiguous pixels.
#include "kernels/conv/gather_lines.h"

#include "base/simd.h"
#include "bitgrad/base/error.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi2,prefer-vector-width=512")
namespace bitgrad::kernels::conv {
namespace {

struct Whole {
  using V = __m512i;
  static constexpr int64_t kBytes = 64;
  BITGRAD_INLINE V load(uint64_t mask, const char* p) { return _mm512_maskz_loadu_epi8(mask, p); }
  BITGRAD_INLINE V permuted(uint64_t mask, V order, V v) { return _mm512_maskz_permutexvar_epi8(mask, order, v); }
  BITGRAD_INLINE void store(char* p, V v) { _mm512_storeu_si512(p, v); }
};
struct Half {
  using V = __m256i;
  static constexpr int64_t kBytes = 32;
  BITGRAD_INLINE V load(uint64_t mask, const char* p) {
    return _mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask), p);
  }
  BITGRAD_INLINE V permuted(uint64_t mask, V order, V v) {
    return _mm256_maskz_permutexvar_epi8(static_cast<__mmask32>(mask), order, v);
  }
  BITGRAD_INLINE void store(char* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
};

uint64_t low_bits(int64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

// Tap rows of one vector. kRows: their number, 0 for any.
template <typename L, bool kOrder, int kRows>
void short_rows(const GatherLine& line) {
  const int64_t rows = kRows > 0 ? kRows : line.rows;
  const uint64_t read = low_bits(line.span), used = low_bits(line.bytes);
  const typename L::V order =
      kOrder ? L::load(low_bits(L::kBytes), reinterpret_cast<const char*>(line.order->data())) : typename L::V{};
  char* to = line.to;
  for (int64_t i = 0; i < line.windows; ++i, to += line.row_stride) {
    for (int64_t ky = 0; ky < rows; ++ky) {
      typename L::V v = L::load(read, line.from[ky] + i * line.advance[ky]);
      if constexpr (kOrder) v = L::permuted(used, order, v);
      L::store(to + ky * line.bytes, v);
    }
  }
}

void long_rows(const GatherLine& line) {
  char* to = line.to;
  for (int64_t i = 0; i < line.windows; ++i, to += line.row_stride) {
    for (int64_t ky = 0; ky < line.rows; ++ky) {
      const char* const from = line.from[ky] + i * line.advance[ky];
      char* const out = to + ky * line.bytes;
      for (int64_t b = 0; b < line.bytes; b += Whole::kBytes)
        Whole::store(out + b, Whole::load(low_bits(line.bytes - b), from + b));
    }
  }
}

template <typename L, bool kOrder>
void short_rows(const GatherLine& line) {
  line.rows == 3 ? short_rows<L, kOrder, 3>(line) : short_rows<L, kOrder, 0>(line);
}

}  // namespace

void gather_line(const GatherLine& line) {
  if (line.bytes > kLineBytes) {
    long_rows(line);
  } else if (line.bytes != line.span) {
    line.span <= Half::kBytes ? short_rows<Half, true>(line) : short_rows<Whole, true>(line);
  } else {
    line.span <= Half::kBytes ? short_rows<Half, false>(line) : short_rows<Whole, false>(line);
  }
  _mm256_zeroupper();
}

}  // namespace bitgrad::kernels::conv
#pragma GCC pop_options
