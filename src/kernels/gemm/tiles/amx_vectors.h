// The AVX-512 code around the tile instructions: expansion of codes by GF2P8AFFINEQB, which turns 64 bytes of packed
// codes into as many rows of a tile as a byte has fields; finished rows of C; digits. Every CPU with AMX has AVX-512,
// VBMI and GFNI.
//
// This header is included inside a target region, after base/simd.h: no std:: here.
#pragma once

#include "kernels/gemm/tiles/amx_loop.h"
#include "kernels/gemm/tiles/amx_small_loops.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// The 8 x 8 matrix over GF(2), in the format of GF2P8AFFINEQB, that extracts field `field` of a byte: bit i of the
// result is bit source(i) of the input; -1: zero.
template <TileFormat kFormat>
constexpr uint64_t field_matrix(int field, bool unsigned_fields) {
  constexpr int kBits = format_bits(kFormat);
  uint64_t matrix = 0;
  for (int i = 0; i < 8; ++i) {
    int source = field * kBits + (i < kBits ? i : kBits - 1);
    if (i >= kBits && unsigned_fields) source = -1;
    // All bits are inverted afterwards: 0xFF for 0, and 1 for 1.
    if (kFormat == TileFormat::kSign && i == 0) source = -1;
    if (source >= 0) matrix |= uint64_t{1} << (8 * (7 - i) + source);
  }
  return matrix;
}

template <TileFormat kFormat>
class VectorFill {
 public:
  explicit VectorFill(bool unsigned_fields) {
    for (int field = 0; field < kFields; ++field)
      matrices_[field] = _mm512_set1_epi64(static_cast<int64_t>(field_matrix<kFormat>(field, unsigned_fields)));
  }

  template <int kHalf>
  [[gnu::always_inline]] void half_tile(const uint8_t* step, int64_t second_word, uint8_t* out) const {
    constexpr int kWords = 8 / kFields;
#pragma GCC unroll 4
    for (int w = 0; w < kWords; ++w) {
      const int64_t offset = kFields == 8 ? kHalf * second_word : (kHalf * kWords + w) * kTileBytes;
      const __m512i word = _mm512_loadu_si512(step + offset);
#pragma GCC unroll 8
      for (int field = 0; field < kFields; ++field)
        _mm512_store_si512(out + (w * kFields + field) * kTileBytes,
                           _mm512_gf2p8affine_epi64_epi8(word, matrices_[field], kInverted));
    }
  }

 private:
  static constexpr int kFields = 8 / format_bits(kFormat);
  static constexpr int kInverted = kFormat == TileFormat::kSign ? 0xFF : 0;
  __m512i matrices_[kFields];
};

// Expands 0 to -1.0 and 1 to 1.0 in bf16.
template <>
class VectorFill<TileFormat::kHalf> {
 public:
  explicit VectorFill(bool) {}

  template <int kHalf>
  [[gnu::always_inline]] void half_tile(const uint8_t* step, int64_t, uint8_t* out) const {
    constexpr int kNotFirstAndSecondOrThird = 0xAE;
    const __m512i words = _mm512_loadu_si512(step);
    const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000)), one = _mm512_set1_epi16(0x3F80);
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) {
      const __m512i bit = _mm512_slli_epi16(words, static_cast<unsigned>(15 - 8 * kHalf - r));
      _mm512_store_si512(out + r * kTileBytes, _mm512_ternarylogic_epi32(bit, sign, one, kNotFirstAndSecondOrThird));
    }
  }
};

template <>
class VectorFill<TileFormat::kBytes> {
 public:
  explicit VectorFill(bool) {}
};

void permute(const uint8_t* in, const uint8_t* order, int64_t count, uint8_t* out, int64_t stride) {
  const __m512i places = _mm512_loadu_si512(order);
  for (int64_t t = 0; t < count; ++t, in += kTileBytes, out += stride)
    _mm512_storeu_si512(out, _mm512_permutexvar_epi8(places, _mm512_loadu_si512(in)));
}

class VectorWriter {
 public:
  // The common cases in networks run without branches per row.
  template <SumKind kKind, int kParts>
  [[gnu::always_inline]] static void write(const DirectRows& out, const uint8_t* sums, int64_t i, int64_t end,
                                           int64_t j) {
    if (out.bias != nullptr || out.accumulate) return write_rows<kKind, kParts, true, false>(out, sums, i, end, j);
    if (out.streamed) return write_rows<kKind, kParts, false, true>(out, sums, i, end, j);
    write_rows<kKind, kParts, false, false>(out, sums, i, end, j);
  }
  static void fence() { _mm_sfence(); }

 private:
  // kAny: with any combination of bias, accumulation and streaming.
  template <SumKind kKind, int kParts, bool kAny, bool kStreamed>
  [[gnu::always_inline]] static void write_rows(const DirectRows& out, const uint8_t* sums, int64_t i, int64_t end,
                                                int64_t j) {
    const float *sb = out.sb + j * out.sb_step, *sa = out.sa;
    const float* bias = out.bias == nullptr ? nullptr : out.bias + j;
    const double* unit = out.unit;
    const int64_t stride = out.stride, sa_step = out.sa_step;
    const bool accumulate = out.accumulate, streamed = out.streamed;
    const __m512 scale[2] = {_mm512_loadu_ps(sb), _mm512_loadu_ps(sb + 16)};
    float* c = out.c + i * stride + j;
    for (; i < end; ++i, c += stride, sums += kSumsStride) {
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const uint8_t* sum = sums + t * kTileBytes;
        __m512 y;
        if constexpr (kKind == SumKind::kCodes)
          y = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sum)),
                            _mm512_mul_ps(_mm512_set1_ps(sa[i * sa_step]), scale[t]));
        else if constexpr (kKind == SumKind::kFloats)
          y = _mm512_mul_ps(_mm512_loadu_ps(sum), scale[t]);
        else
          y = _mm512_mul_ps(join<kParts>(sum, unit[i]), scale[t]);
        if (kAny && bias != nullptr) y = _mm512_add_ps(y, _mm512_loadu_ps(bias + 16 * t));
        if (kAny && accumulate) y = _mm512_add_ps(_mm512_loadu_ps(c + 16 * t), y);
        if (kStreamed || (kAny && streamed))
          _mm512_stream_ps(c + 16 * t, y);
        else
          _mm512_storeu_ps(c + 16 * t, y);
      }
    }
  }
  // 16 columns of a row of digits, as in AmxLoops::join_digits.
  template <int kParts>
  [[gnu::always_inline]] static __m512 join(const uint8_t* sums, double unit) {
    const auto sum = [&](int part) {
      return _mm512_cvtepi32_ps(_mm512_loadu_si512(sums + part * static_cast<int64_t>(kSumBytes)));
    };
    __m512 t = sum(kParts - 1);
    float power = 256;
#pragma GCC unroll 2
    for (int part = kParts - 2; part >= 0; --part, power *= 256)
      t = _mm512_fmadd_ps(sum(part), _mm512_set1_ps(power), t);
    const __m512d units = _mm512_set1_pd(unit);
    const __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(t)), units));
    const __m256 high = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(t, 1)), units));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
  }
};

// As in AmxLoops, 16 at a time; the compiler generates poor code for the narrowing.
void to_digits(const float* x, const double* scale, int64_t n, int parts, uint8_t* out, int64_t stride) {
  const __m512i half = _mm512_set1_epi32(128);
  for (int64_t j = 0; j < n; j += 16) {
    const auto mask = static_cast<__mmask16>(n - j < 16 ? (1u << (n - j)) - 1 : 0xFFFF);
    const __m512 v = _mm512_maskz_loadu_ps(mask, x + j);
    const __m512d low = _mm512_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                                      _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), scale + j));
    const __m512d high = _mm512_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)),
                                       _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask >> 8), scale + j + 8));
    __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtpd_epi32(low)), _mm512_cvtpd_epi32(high), 1);
    for (int part = parts - 1; part >= 0; --part) {
      _mm512_mask_cvtepi32_storeu_epi8(out + part * stride + j, mask, q);
      q = _mm512_srai_epi32(_mm512_add_epi32(q, half), 8);
    }
  }
}

void interleave(const uint8_t* in, int64_t stride, uint8_t* out) {
  const auto line = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * stride)); };
  const auto put = [&](int i, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out) + i, v); };
  const __m128i low01 = _mm_unpacklo_epi8(line(0), line(1)), high01 = _mm_unpackhi_epi8(line(0), line(1));
  const __m128i low23 = _mm_unpacklo_epi8(line(2), line(3)), high23 = _mm_unpackhi_epi8(line(2), line(3));
  put(0, _mm_unpacklo_epi16(low01, low23));
  put(1, _mm_unpackhi_epi16(low01, low23));
  put(2, _mm_unpacklo_epi16(high01, high23));
  put(3, _mm_unpackhi_epi16(high01, high23));
}

// Replaces those small functions of `isa` for which intrinsics are better.
constexpr AmxIsa with_intrinsics(AmxIsa isa) {
  isa.to_digits = &to_digits;
  isa.interleave = &interleave;
  return isa;
}

template <typename T>
struct WithVectors {
  using Tiles = T;
  template <TileFormat kFormat>
  using Fill = VectorFill<kFormat>;
  using Writer = VectorWriter;
};

// The instruction set for these tiles: MachineTiles, or emulated ones.
template <typename T>
constexpr AmxIsa vector_isa() {
  return with_intrinsics(make_amx_isa<WithVectors<T>>(&TileLoops<WithVectors<T>>::find, &permute));
}

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail
