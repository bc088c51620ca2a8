// AVX2 expanders: 32 codes to bytes, or 8 codes to floats, per step.
//
// Codes may have any width and start at any bit; 8 of them lie in 8 bytes. A byte shuffle moves the two bytes that
// contain code i into 16-bit lane i; a product with 2^(16 - bits - s), s being the bit where the code starts, moves the
// code to the top and drops the bits above it; a right shift moves it down. Codes of 1, 2 and 4 bits that start on a
// byte need fewer steps. For floats the lanes are 32 bits wide and variable shifts replace the product.
#include "base/simd.h"
#include "dtype/code_tables.h"

namespace bitgrad::detail {
namespace {

// Shuffle and factors of the general path for 8 codes of `bits` bits starting at bit `bit`.
struct Window {
  alignas(16) uint8_t shuffle[16];
  alignas(16) uint16_t times[8];
};
struct Windows {
  Window of[8][8];
};
constexpr Windows make_windows() {
  Windows w{};
  for (int bits = 2; bits <= 7; ++bits) {
    for (int bit = 0; bit < 8; ++bit) {
      for (int i = 0; i < 8; ++i) {
        const int at = bit + bits * i;
        w.of[bits][bit].shuffle[2 * i] = static_cast<uint8_t>(at / 8);
        w.of[bits][bit].shuffle[2 * i + 1] = static_cast<uint8_t>(at / 8 + 1);
        const int up = 16 - bits - at % 8;
        w.of[bits][bit].times[i] = static_cast<uint16_t>(1u << up);
      }
    }
  }
  return w;
}
constexpr Windows kWindows = make_windows();

constexpr int64_t kBlock = 32;  // codes per step of the byte loops
constexpr int kTableBits = 4;   // the widest code that a byte shuffle can look up

// Loads 8 bytes at p. Bytes from `end` on are not read and are 0; no byte before `begin` is read.
inline uint64_t word_before(const uint8_t* begin, const uint8_t* p, const uint8_t* end) {
  uint64_t word = 0;
  const int64_t left = end - p;
  if (left <= 0) return 0;
  if (left >= 8) {
    __builtin_memcpy(&word, p, 8);
  } else if (end - begin >= 8) {
    __builtin_memcpy(&word, end - 8, 8);
    word >>= 64 - 8 * left;
  } else {
    for (int64_t i = 0; i < left; ++i) word |= static_cast<uint64_t>(p[i]) << (8 * i);
  }
  return word;
}

}  // namespace

#pragma GCC push_options
#pragma GCC target("avx2,f16c")
namespace {

struct Control {
  __m256i shuffle, times, table, top;
  __m256i zero, change;  // codes of 1 bit: the value of code 0, and its xor with the value of code 1
  __m128i down;
};

// Expands kBlock codes, read in groups of 8 that start every `step` bytes.
using Block = void (*)(const uint8_t* p, int64_t step, const Control& c, uint8_t* out);

// Applies a block function that reads only the bytes of its kBlock codes to a whole run.
[[gnu::always_inline]] inline void each_exact(const CodeRun& run, Block block, const Control& c, uint8_t* out) {
  const int64_t step = run.bits;
  const uint8_t* p = run.p;
  int64_t n = run.n;
  for (; n >= kBlock; n -= kBlock, p += 4 * step, out += kBlock) block(p, step, c, out);
  if (n == 0) return;
  if (run.n >= kBlock && n * step % 8 == 0) {  // the last kBlock codes start on a byte: some are expanded twice
    block(p + n * step / 8 - 4 * step, step, c, out + n - kBlock);
    return;
  }
  uint8_t copy[32] = {}, last[kBlock];
  __builtin_memcpy(copy, p, static_cast<size_t>((n * step + 7) / 8));
  block(copy, step, c, last);
  __builtin_memcpy(out, last, static_cast<size_t>(n));
}

// Applies a block function that reads 8 bytes for each of its 4 groups to a whole run.
[[gnu::always_inline]] inline void each_wide(const CodeRun& run, Block block, const Control& c, uint8_t* out) {
  const int64_t step = run.bits;
  const uint8_t *p = run.p, *const end = run.p + run.bytes();
  int64_t n = run.n;
  for (; n >= kBlock && end - p >= 3 * step + 8; n -= kBlock, p += 4 * step, out += kBlock) block(p, step, c, out);
  for (; n > 0; n -= kBlock, p += 4 * step, out += kBlock) {
    uint64_t words[4];
    for (int g = 0; g < 4; ++g) words[g] = word_before(run.p, p + g * step, end);
    uint8_t last[kBlock];
    block(reinterpret_cast<const uint8_t*>(words), 8, c, n < kBlock ? last : out);
    if (n < kBlock) __builtin_memcpy(out, last, static_cast<size_t>(n));
  }
}

[[gnu::always_inline]] inline void block_1(const uint8_t* p, int64_t, const Control& c, uint8_t* out) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(word), c.shuffle);
  const __m256i one = _mm256_cmpeq_epi8(_mm256_and_si256(spread, c.times), c.times);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_xor_si256(_mm256_and_si256(one, c.change), c.zero));
}

[[gnu::always_inline]] inline void block_2(const uint8_t* p, int64_t, const Control& c, uint8_t* out) {
  __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  x = _mm256_or_si256(x, _mm256_slli_epi32(x, 12));
  x = _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi32(x, 6)), _mm256_set1_epi8(3));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_shuffle_epi8(c.table, x));
}

[[gnu::always_inline]] inline void block_4(const uint8_t* p, int64_t, const Control& c, uint8_t* out) {
  __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  x = _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi16(x, 4)), _mm256_set1_epi8(15));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_shuffle_epi8(c.table, x));
}

// 16 raw codes in 16-bit lanes: 8 codes from byte p and 8 from byte q.
#define BITGRAD_RAW16(p, q)                                                                                         \
  _mm256_srl_epi16(                                                                                                 \
      _mm256_mullo_epi16(                                                                                           \
          _mm256_shuffle_epi8(                                                                                      \
              _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), \
                                      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q)), 1),                     \
              c.shuffle),                                                                                           \
          c.times),                                                                                                 \
      c.down)

// packus interleaves the 128-bit halves of its arguments, hence the order of the groups.
[[gnu::always_inline]] inline void block_any_table(const uint8_t* p, int64_t step, const Control& c, uint8_t* out) {
  const __m256i x = _mm256_packus_epi16(BITGRAD_RAW16(p, p + 2 * step), BITGRAD_RAW16(p + step, p + 3 * step));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_shuffle_epi8(c.table, x));
}

[[gnu::always_inline]] inline void block_any(const uint8_t* p, int64_t step, const Control& c, uint8_t* out) {
  const __m256i x = _mm256_packus_epi16(BITGRAD_RAW16(p, p + 2 * step), BITGRAD_RAW16(p + step, p + 3 * step));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_sub_epi8(_mm256_xor_si256(x, c.top), c.top));
}
#undef BITGRAD_RAW16

void unpack_ones(const CodeRun& run, const ByteRule& rule, Control& c, uint8_t* out) {
  const int8_t zero = rule.table != nullptr ? rule.table[0] : int8_t{0};
  const int8_t one = rule.table != nullptr ? rule.table[1] : int8_t{1};
  c.shuffle = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  c.times = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  c.zero = _mm256_set1_epi8(zero);
  c.change = _mm256_set1_epi8(static_cast<char>(zero ^ one));
  each_exact(run, block_1, c, out);
}

}  // namespace

void unpack_bytes_avx2(const CodeRun& run, const ByteRule& rule, uint8_t* out) {
  Control c;
  if (run.bits == 1) return unpack_ones(run, rule, c, out);
  c.table = rule.table != nullptr
                ? _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rule.table)))
                : _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                   10, 11, 12, 13, 14, 15);
  c.top = _mm256_set1_epi8(static_cast<char>(rule.top));
  if (run.bit == 0 && run.bits == 2) return each_exact(run, block_2, c, out);
  if (run.bit == 0 && run.bits == 4) return each_exact(run, block_4, c, out);
  const Window& w = kWindows.of[run.bits][run.bit];
  c.shuffle = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(w.shuffle)));
  c.times = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(w.times)));
  c.down = _mm_cvtsi32_si128(16 - run.bits);
  if (run.bits <= kTableBits) return each_wide(run, block_any_table, c, out);
  each_wide(run, block_any, c, out);
}

namespace {

struct FloatControl {
  __m256i shuffle, up;
  __m128i down;
};

// 8 codes of a word; each 32-bit lane receives the two bytes that contain its code, unshifted.
#define BITGRAD_LANES8(word) _mm256_shuffle_epi8(_mm256_set1_epi64x(static_cast<int64_t>(word)), c.shuffle)

using FloatBlock = void (*)(uint64_t word, const FloatControl& c, float* out);

[[gnu::always_inline]] inline void floats_int(uint64_t word, const FloatControl& c, float* out) {
  const __m256i x = _mm256_sra_epi32(_mm256_sllv_epi32(BITGRAD_LANES8(word), c.up), c.down);
  _mm256_storeu_ps(out, _mm256_cvtepi32_ps(x));
}

[[gnu::always_inline]] inline void floats_uint(uint64_t word, const FloatControl& c, float* out) {
  const __m256i x = _mm256_srl_epi32(_mm256_sllv_epi32(BITGRAD_LANES8(word), c.up), c.down);
  _mm256_storeu_ps(out, _mm256_cvtepi32_ps(x));
}
#undef BITGRAD_LANES8

[[gnu::always_inline]] inline void each_float_block(const CodeRun& run, FloatBlock block, const FloatControl& c,
                                                    float* out) {
  const int64_t step = run.bits;
  const uint8_t *p = run.p, *const end = run.p + run.bytes();
  int64_t n = run.n;
  for (; n >= 8 && end - p >= 8; n -= 8, p += step, out += 8) {
    uint64_t next;
    __builtin_memcpy(&next, p, 8);
    block(next, c, out);
  }
  // The remaining codes fit in one word; at 8 bits, fewer than 8 codes remain.
  uint64_t word = word_before(run.p, p, end);
  for (; n >= 8; n -= 8, word >>= 8 * step, out += 8) block(word, c, out);
  if (n == 0) return;
  float last[8];
  block(word, c, last);
  for (int64_t i = 0; i < n; ++i) out[i] = last[i];
}

}  // namespace

void unpack_floats_avx2(const CodeRun& run, const FloatRule& rule, float* out) {
  FloatControl c;
  const __m256i at =
      _mm256_add_epi32(_mm256_mullo_epi16(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(run.bits)),
                       _mm256_set1_epi32(run.bit));
  // Bytes k and k + 1, and two zero bytes.
  const __m256i k = _mm256_srli_epi32(at, 3);
  c.shuffle = _mm256_add_epi32(_mm256_or_si256(k, _mm256_slli_epi32(k, 8)),
                               _mm256_set1_epi32(static_cast<int32_t>(0x80800100u)));
  c.up = _mm256_sub_epi32(_mm256_set1_epi32(32 - run.bits), _mm256_and_si256(at, _mm256_set1_epi32(7)));
  c.down = _mm_cvtsi32_si128(32 - run.bits);
  if (rule.source == FloatSource::kInt) return each_float_block(run, floats_int, c, out);
  each_float_block(run, floats_uint, c, out);
}

namespace {

[[gnu::always_inline]] inline __m256 widened8(const uint8_t* p, bool bf16) {
  const __m128i in = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(in), 16)) : _mm256_cvtph_ps(in);
}

}  // namespace

void unpack_halves_avx2(const uint8_t* p, int64_t n, bool bf16, float* out) {
  for (; n >= 8; n -= 8, p += 16, out += 8) _mm256_storeu_ps(out, widened8(p, bf16));
  if (n <= 0) return;
  uint8_t rest[16] = {};
  float values[8];
  __builtin_memcpy(rest, p, static_cast<size_t>(2 * n));
  _mm256_storeu_ps(values, widened8(rest, bf16));
  for (int64_t i = 0; i < n; ++i) out[i] = values[i];
}
#pragma GCC pop_options

}  // namespace bitgrad::detail
