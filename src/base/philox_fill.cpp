// Philox4x32-10 on 4 (AVX2) or 8 (AVX-512) blocks at once, one block per 64-bit lane and one counter word per vector.
//
// Words live in the low halves; the high halves hold left-overs, which vpmuludq ignores and the last step drops. So a
// round is two products, two shifts and four xors.
#include "base/philox_fill.h"

#include "bitgrad/base/cpu.h"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // false alarms inside the AVX-512 headers of g++ 12
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace bitgrad::detail {
namespace {

constexpr int kRounds = 10;
constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;

void fill_scalar(const RandomStream& stream, uint64_t first, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const PhiloxBlock words = stream.block(first + static_cast<uint64_t>(i));
    for (uint32_t word : words) {
      *out++ = static_cast<uint16_t>(word);
      *out++ = static_cast<uint16_t>(word >> 16);
    }
  }
}

#if defined(__x86_64__)
// What a vector routine needs, in plain words.
struct Words {
  uint64_t first;
  uint32_t purpose, id, step, key0, key1;
};

#pragma GCC push_options
#pragma GCC target("avx2")
void fill_avx2(const Words& w, int64_t groups, uint16_t* out) {
  const __m256i m0 = _mm256_set1_epi64x(kMultiplier0), m1 = _mm256_set1_epi64x(kMultiplier1);
  const __m256i purpose = _mm256_set1_epi64x(static_cast<int64_t>(uint64_t{w.purpose} << 24));
  const __m256i low24 = _mm256_set1_epi64x(0xFFFFFF), low32 = _mm256_set1_epi64x(0xFFFFFFFF);
  __m256i index = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(w.first)), _mm256_set_epi64x(3, 2, 1, 0));
  for (int64_t g = 0; g < groups; ++g, out += 32) {
    __m256i c0 = index, c2 = _mm256_set1_epi64x(w.id), c3 = _mm256_set1_epi64x(w.step);
    __m256i c1 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi64(index, 32), low24), purpose);
    uint32_t k0 = w.key0, k1 = w.key1;
    for (int r = 0; r < kRounds; ++r, k0 += kWeyl0, k1 += kWeyl1) {
      const __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
      c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(k0));
      c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(k1));
      c1 = p1;
      c3 = p0;
    }
    const __m256i low = _mm256_or_si256(_mm256_and_si256(c0, low32), _mm256_slli_epi64(c1, 32));
    const __m256i high = _mm256_or_si256(_mm256_and_si256(c2, low32), _mm256_slli_epi64(c3, 32));
    const __m256i even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), _mm256_permute2x128_si256(even, odd, 0x31));
    index = _mm256_add_epi64(index, _mm256_set1_epi64x(4));
  }
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw")
void fill_avx512(const Words& w, int64_t groups, uint16_t* out) {
  const __m512i m0 = _mm512_set1_epi64(kMultiplier0), m1 = _mm512_set1_epi64(kMultiplier1);
  const __m512i purpose = _mm512_set1_epi64(static_cast<int64_t>(uint64_t{w.purpose} << 24));
  const __m512i low24 = _mm512_set1_epi64(0xFFFFFF), low32 = _mm512_set1_epi64(0xFFFFFFFF);
  const __m512i pick0 = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                pick1 = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  __m512i index =
      _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(w.first)), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
  for (int64_t g = 0; g < groups; ++g, out += 64) {
    __m512i c0 = index, c2 = _mm512_set1_epi64(w.id), c3 = _mm512_set1_epi64(w.step);
    __m512i c1 = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi64(index, 32), low24), purpose);
    uint32_t k0 = w.key0, k1 = w.key1;
    for (int r = 0; r < kRounds; ++r, k0 += kWeyl0, k1 += kWeyl1) {
      const __m512i p0 = _mm512_mul_epu32(c0, m0), p1 = _mm512_mul_epu32(c2, m1);
      c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c1, _mm512_set1_epi64(k0), 0x96);
      c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c3, _mm512_set1_epi64(k1), 0x96);
      c1 = p1;
      c3 = p0;
    }
    const __m512i low = _mm512_or_si512(_mm512_and_si512(c0, low32), _mm512_slli_epi64(c1, 32));
    const __m512i high = _mm512_or_si512(_mm512_and_si512(c2, low32), _mm512_slli_epi64(c3, 32));
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, pick0, high));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi64(low, pick1, high));
    index = _mm512_add_epi64(index, _mm512_set1_epi64(8));
  }
}
#pragma GCC pop_options
#endif

}  // namespace

void philox_fill(const RandomStream& stream, uint64_t first, int64_t count, uint16_t* out) {
  int64_t done = 0;
#if defined(__x86_64__)
  const IsaMask mask = count >= 4 ? cpu_isa() : 0;
  const Words words{first,       static_cast<uint32_t>(stream.purpose), stream.id,
                    stream.step, static_cast<uint32_t>(stream.seed),    static_cast<uint32_t>(stream.seed >> 32)};
  if ((mask & isa::kAvx512) != 0 && count >= 8) {
    done = count / 8 * 8;
    fill_avx512(words, count / 8, out);
  } else if ((mask & isa::kAvx2) != 0) {
    done = count / 4 * 4;
    fill_avx2(words, count / 4, out);
  }
#endif
  fill_scalar(stream, first + static_cast<uint64_t>(done), count - done, out + done * 8);
}

}  // namespace bitgrad::detail
#if defined(__x86_64__)
#pragma GCC diagnostic pop
#endif
