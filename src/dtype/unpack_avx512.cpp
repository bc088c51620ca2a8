// AVX-512 expanders: 64 codes to bytes (with VBMI), or 16 codes to floats (without VBMI), per step. Loads are masked to
// the bytes of the run and stores to its elements, so the end of a run needs no special case.
//
// Bytes: 8 codes of any width at any bit lie in 8 bytes. A permute lays out these bytes for each of 8 groups, and
// VPMULTISHIFTQB extracts 8 bits from the start of each code. Up to 6 bits, a second permute looks up the value and
// ignores the bits above the code.
// Floats: a shuffle moves the two bytes that contain code i into lane i and a variable shift aligns the code. Up to 4
// bits a permute looks up the value; wider codes are converted.
#include "base/simd.h"
#include "dtype/code_tables.h"

namespace bitgrad::detail {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101u, kCount = 0x0706050403020100u;

// A mask of the low `count` bits, count in 0 .. 64.
inline uint64_t first_bits(int64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

}  // namespace

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi2,prefer-vector-width=512")
void unpack_bytes_vbmi(const CodeRun& run, const ByteRule& rule, uint8_t* out) {
  const int64_t bits = run.bits, step = 8 * bits;
  // Byte k of group g is byte bits * g + k of the block, at most 63, so nothing carries from byte to byte.
  const __m512i group = _mm512_setr_epi64(0, kOnes, 2 * kOnes, 3 * kOnes, 4 * kOnes, 5 * kOnes, 6 * kOnes, 7 * kOnes);
  const __m512i lay = _mm512_add_epi8(_mm512_mullo_epi16(group, _mm512_set1_epi16(static_cast<int16_t>(bits))),
                                      _mm512_set1_epi64(static_cast<int64_t>(kCount)));
  const __m512i start = _mm512_set1_epi64(
      static_cast<int64_t>(kCount * static_cast<uint64_t>(bits) + kOnes * static_cast<uint64_t>(run.bit)));
  const bool look_up = rule.table != nullptr && bits <= 6;
  const __m512i table = look_up ? _mm512_loadu_si512(rule.table) : _mm512_setzero_si512();
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << bits) - 1));
  const __m512i top = _mm512_set1_epi8(static_cast<char>(rule.top));
  const __mmask64 full = first_bits(run.bit == 0 ? step : step + 1);
  const uint8_t* p = run.p;
  int64_t n = run.n;
  for (; n > 0; n -= 64, p += step, out += 64) {
    const __m512i in = _mm512_maskz_loadu_epi8(n >= 64 ? full : first_bits((run.bit + n * bits + 7) / 8), p);
    __m512i x = _mm512_multishift_epi64_epi8(start, _mm512_permutexvar_epi8(lay, in));
    if (look_up) {
      x = _mm512_permutexvar_epi8(x, table);
    } else {
      x = _mm512_sub_epi8(_mm512_xor_si512(_mm512_and_si512(x, mask), top), top);
    }
    if (n >= 64) {
      _mm512_storeu_si512(out, x);
    } else {
      _mm512_mask_storeu_epi8(out, first_bits(n), x);
    }
  }
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,prefer-vector-width=512")
// Codes of 8 bits.
static void floats_of_bytes(const CodeRun& run, bool sign, float* out) {
  for (int64_t i = 0; i < run.n; i += 16) {
    const auto mask = static_cast<__mmask16>(first_bits(run.n - i < 16 ? run.n - i : 16));
    const __m128i in = _mm_maskz_loadu_epi8(mask, run.p + i);
    const __m512 y = _mm512_cvtepi32_ps(sign ? _mm512_cvtepi8_epi32(in) : _mm512_cvtepu8_epi32(in));
    if (run.n - i >= 16) {
      _mm512_storeu_ps(out + i, y);
    } else {
      _mm512_mask_storeu_ps(out + i, mask, y);
    }
  }
}

void unpack_floats_avx512(const CodeRun& run, const FloatRule& rule, float* out) {
  if (run.bits == 8 && run.bit == 0) return floats_of_bytes(run, rule.source == FloatSource::kInt, out);
  const int64_t bits = run.bits, step = 2 * bits;
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i at =
      _mm512_add_epi32(_mm512_mullo_epi16(lane, _mm512_set1_epi32(run.bits)), _mm512_set1_epi32(run.bit));
  // Bytes k and k + 1, and two zero bytes. The byte after the 16 codes is never part of a code.
  const __m512i k = _mm512_srli_epi32(at, 3);
  const __m512i shuffle = _mm512_add_epi32(_mm512_or_si512(k, _mm512_slli_epi32(k, 8)),
                                           _mm512_set1_epi32(static_cast<int32_t>(0x80800100u)));
  const __m512i start = _mm512_and_si512(at, _mm512_set1_epi32(7));
  const __m512i up = _mm512_sub_epi32(_mm512_set1_epi32(32 - run.bits), start);
  const __m128i down = _mm_cvtsi32_si128(32 - run.bits);
  const __m512 table = _mm512_loadu_ps(rule.table);
  const __mmask16 full = static_cast<__mmask16>(first_bits(run.bit == 0 ? step : step + 1));
  const uint8_t* p = run.p;
  int64_t n = run.n;
  for (; n > 0; n -= 16, p += step, out += 16) {
    const __mmask16 bytes = n >= 16 ? full : static_cast<__mmask16>(first_bits((run.bit + n * bits + 7) / 8));
    const __m128i in = _mm_maskz_loadu_epi8(bytes, p);
    const __m512i x = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(in), shuffle);
    __m512 y;
    if (bits <= 4) {
      y = _mm512_permutexvar_ps(_mm512_srlv_epi32(x, start), table);
    } else if (rule.source == FloatSource::kInt) {
      y = _mm512_cvtepi32_ps(_mm512_sra_epi32(_mm512_sllv_epi32(x, up), down));
    } else {
      y = _mm512_cvtepi32_ps(_mm512_srl_epi32(_mm512_sllv_epi32(x, up), down));
    }
    if (n >= 16) {
      _mm512_storeu_ps(out, y);
    } else {
      _mm512_mask_storeu_ps(out, static_cast<__mmask16>(first_bits(n)), y);
    }
  }
}

[[gnu::always_inline]] inline __m512 widened16(__m256i in, bool bf16) {
  return bf16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(in), 16)) : _mm512_cvtph_ps(in);
}

void unpack_halves_avx512(const uint8_t* p, int64_t n, bool bf16, float* out) {
  for (; n >= 16; n -= 16, p += 32, out += 16)
    _mm512_storeu_ps(out, widened16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), bf16));
  if (n <= 0) return;
  const auto lanes = static_cast<__mmask16>(first_bits(n));
  _mm512_mask_storeu_ps(out, lanes, widened16(_mm256_maskz_loadu_epi16(lanes, p), bf16));
}
#pragma GCC pop_options

}  // namespace bitgrad::detail
