// Philox4x32-10 on 4 (AVX2) or 8 (AVX-512) blocks at a time: one block per 64-bit lane, one counter word per vector.
//
// Words are in the low halves of the lanes. The high halves hold garbage, which vpmuludq ignores and the final step
// drops, so a round is two products, two shifts and four xors.
#include "base/philox_fill.h"

#include "base/simd.h"
#include "bitgrad/base/cpu.h"

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

// Scalar inputs of the vector routines. The blocks of a call differ only in the first counter word, so parts of the
// first three rounds are common to all: in round 0, c2 * m1 and hence the new c0 and c1; in round 1, c0 * m0 and hence
// the new c3.
struct Words {
  uint64_t first = 0;                     // low word of the first block number; the blocks must not cross 2^32
  uint64_t round0_c2 = 0;                 // xored into the high word of c0 * m0
  uint64_t round1_c0 = 0;                 // xored into the high word of c2 * m1
  uint64_t round1_c2 = 0;                 // xored into c3
  uint64_t key0[kRounds], key1[kRounds];  // key1[2] also contains the c3 of round 2

  Words(const RandomStream& stream, uint64_t block) : first(block & 0xFFFFFFFFu) {
    for (uint32_t r = 0; r < kRounds; ++r) {
      key0[r] = static_cast<uint32_t>(static_cast<uint32_t>(stream.seed) + r * kWeyl0);
      key1[r] = static_cast<uint32_t>(static_cast<uint32_t>(stream.seed >> 32) + r * kWeyl1);
    }
    const uint64_t c1 = (static_cast<uint64_t>(stream.purpose) << 24) | ((block >> 32) & 0xFFFFFFu);
    const uint64_t p1 = uint64_t{kMultiplier1} * stream.id, p0 = uint64_t{kMultiplier0} * ((p1 >> 32) ^ c1 ^ key0[0]);
    round0_c2 = stream.step ^ key1[0];
    round1_c0 = (p1 & 0xFFFFFFFFu) ^ key0[1];
    round1_c2 = (p0 >> 32) ^ key1[1];
    key1[2] ^= p0 & 0xFFFFFFFFu;
  }
};

#pragma GCC push_options
#pragma GCC target("avx2")
inline __attribute__((always_inline)) __m256i all4(uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); }

// Computes kGroups independent groups in parallel: a single chain of products is bound by latency.
template <int kGroups>
inline __attribute__((always_inline)) void groups_avx2(const Words& w, __m256i first, uint16_t* out) {
  const __m256i m0 = all4(kMultiplier0), m1 = all4(kMultiplier1);
  __m256i c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int j = 0; j < kGroups; ++j) {
    const __m256i p0 = _mm256_mul_epu32(_mm256_add_epi64(first, all4(static_cast<uint64_t>(4 * j))), m0);
    c1[j] = _mm256_mul_epu32(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), all4(w.round0_c2)), m1);
    c0[j] = _mm256_xor_si256(_mm256_srli_epi64(c1[j], 32), all4(w.round1_c0));
    c2[j] = _mm256_xor_si256(p0, all4(w.round1_c2));
    c3[j] = _mm256_setzero_si256();
  }
#pragma GCC unroll 8
  for (int r = 2; r < kRounds; ++r) {
    const __m256i k0 = all4(w.key0[r]), k1 = all4(w.key1[r]);
    for (int j = 0; j < kGroups; ++j) {
      const __m256i p0 = _mm256_mul_epu32(c0[j], m0), p1 = _mm256_mul_epu32(c2[j], m1);
      c0[j] = _mm256_xor_si256(_mm256_shuffle_epi32(p1, 0xF5), _mm256_xor_si256(c1[j], k0));
      c2[j] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c3[j], k1));
      c1[j] = p1;
      c3[j] = p0;
    }
  }
  for (int j = 0; j < kGroups; ++j, out += 32) {
    const __m256i low = _mm256_blend_epi32(c0[j], _mm256_slli_epi64(c1[j], 32), 0xAA);
    const __m256i high = _mm256_blend_epi32(c2[j], _mm256_slli_epi64(c3[j], 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), _mm256_permute2x128_si256(even, odd, 0x31));
  }
}

void fill_avx2(const Words& w, int64_t groups, uint16_t* out) {
  __m256i index = _mm256_add_epi64(all4(w.first), _mm256_set_epi64x(3, 2, 1, 0));
  for (; groups >= 2; groups -= 2, out += 64, index = _mm256_add_epi64(index, all4(8))) groups_avx2<2>(w, index, out);
  if (groups > 0) groups_avx2<1>(w, index, out);
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw")
inline __attribute__((always_inline)) __m512i all8(uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); }

template <int kGroups>
inline __attribute__((always_inline)) void groups_avx512(const Words& w, __m512i first, uint16_t* out) {
  const __m512i m0 = all8(kMultiplier0), m1 = all8(kMultiplier1);
  const __m512i pick0 = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                pick1 = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  __m512i c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int j = 0; j < kGroups; ++j) {
    const __m512i p0 = _mm512_mul_epu32(_mm512_add_epi64(first, all8(static_cast<uint64_t>(8 * j))), m0);
    c1[j] = _mm512_mul_epu32(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), all8(w.round0_c2)), m1);
    c0[j] = _mm512_xor_si512(_mm512_srli_epi64(c1[j], 32), all8(w.round1_c0));
    c2[j] = _mm512_xor_si512(p0, all8(w.round1_c2));
    c3[j] = _mm512_setzero_si512();
  }
#pragma GCC unroll 8
  for (int r = 2; r < kRounds; ++r) {
    for (int j = 0; j < kGroups; ++j) {
      const __m512i p0 = _mm512_mul_epu32(c0[j], m0), p1 = _mm512_mul_epu32(c2[j], m1);
      // The shift runs on port 0, the shuffle on port 5.
      c0[j] = _mm512_ternarylogic_epi64(_mm512_shuffle_epi32(p1, _MM_PERM_DDBB), c1[j], all8(w.key0[r]), 0x96);
      c2[j] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c3[j], all8(w.key1[r]), 0x96);
      c1[j] = p1;
      c3[j] = p0;
    }
  }
  for (int j = 0; j < kGroups; ++j, out += 64) {
    const __m512i low = _mm512_mask_shuffle_epi32(c0[j], 0xAAAA, c1[j], _MM_PERM_CCAA);
    const __m512i high = _mm512_mask_shuffle_epi32(c2[j], 0xAAAA, c3[j], _MM_PERM_CCAA);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, pick0, high));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi64(low, pick1, high));
  }
}

void fill_avx512(const Words& w, int64_t groups, uint16_t* out) {
  __m512i index = _mm512_add_epi64(all8(w.first), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
  for (; groups >= 4; groups -= 4, out += 256, index = _mm512_add_epi64(index, all8(32)))
    groups_avx512<4>(w, index, out);
  for (; groups > 0; --groups, out += 64, index = _mm512_add_epi64(index, all8(8))) groups_avx512<1>(w, index, out);
}
#pragma GCC pop_options

// For blocks whose first word does not cross 2^32. Returns the number of blocks written.
int64_t fill_vectors(const RandomStream& stream, uint64_t first, int64_t count, uint16_t* out) {
  const IsaMask mask = count >= 4 ? cpu_isa() : 0;
  if ((mask & isa::kAvx512) != 0 && count >= 8) {
    fill_avx512(Words(stream, first), count / 8, out);
    return count / 8 * 8;
  }
  if ((mask & isa::kAvx2) == 0) return 0;
  fill_avx2(Words(stream, first), count / 4, out);
  return count / 4 * 4;
}

}  // namespace

void philox_fill(const RandomStream& stream, uint64_t first, int64_t count, uint16_t* out) {
  while (count > 0) {
    const uint64_t to_carry = (uint64_t{1} << 32) - (first & 0xFFFFFFFFu);
    const int64_t run = to_carry < static_cast<uint64_t>(count) ? static_cast<int64_t>(to_carry) : count;
    const int64_t done = fill_vectors(stream, first, run, out);
    fill_scalar(stream, first + static_cast<uint64_t>(done), run - done, out + done * 8);
    first += static_cast<uint64_t>(run);
    count -= run;
    out += run * 8;
  }
}

}  // namespace bitgrad::detail
