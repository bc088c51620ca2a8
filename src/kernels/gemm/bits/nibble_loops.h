// The loops of the nibble counts, written once for registers of 256 and 512 bits. Included inside a target region,
// after a type V with the register operations (nibble_avx2.cpp, nibble_avx512.cpp), so that this text is compiled for
// that instruction set. Must not include anything.
#pragma once

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kHalf = V::kBytes;  // lanes per nibble position, bytes per entry
constexpr int64_t kLanes = 2 * kHalf;
constexpr int64_t kTableBytes = kNibbleEntries * kHalf;

// Puts byte j of 16 words into register j.
inline void transpose_bytes(const uint32_t* words, __m128i (&out)[4]) {
  const __m128i turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m128i a[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    a[i] = _mm_shuffle_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(words + 4 * i)), turn);
  const __m128i l0 = _mm_unpacklo_epi32(a[0], a[1]), l1 = _mm_unpacklo_epi32(a[2], a[3]);
  const __m128i h0 = _mm_unpackhi_epi32(a[0], a[1]), h1 = _mm_unpackhi_epi32(a[2], a[3]);
  out[0] = _mm_unpacklo_epi64(l0, l1);
  out[1] = _mm_unpackhi_epi64(l0, l1);
  out[2] = _mm_unpacklo_epi64(h0, h1);
  out[3] = _mm_unpackhi_epi64(h0, h1);
}

// Lanes are interleaved such that the even and the odd bytes of a register of counts are lanes in order: byte 2i of the
// low nibbles is lane i, byte 2i + 1 is lane kHalf / 2 + i. The high nibbles hold the second half of the lanes in the
// same order.
void columns(const uint32_t* words, uint8_t* out) {
  constexpr int kQuarters = static_cast<int>(kHalf / 32);  // registers of 16 lanes in half a nibble plane
  const __m128i low = _mm_set1_epi8(0x0F), high = _mm_set1_epi8(static_cast<char>(0xF0));
#pragma GCC unroll 2
  for (int q = 0; q < kQuarters; ++q) {
    __m128i x[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) transpose_bytes(words + 16 * (kQuarters * i + q), x[i]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m128i l[2] = {_mm_unpacklo_epi8(x[0][j], x[1][j]), _mm_unpackhi_epi8(x[0][j], x[1][j])};
      const __m128i h[2] = {_mm_unpacklo_epi8(x[2][j], x[3][j]), _mm_unpackhi_epi8(x[2][j], x[3][j])};
#pragma GCC unroll 2
      for (int s = 0; s < 2; ++s) {
        const __m128i first = _mm_or_si128(_mm_and_si128(l[s], low), _mm_slli_epi16(_mm_and_si128(h[s], low), 4));
        const __m128i second = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(l[s], 4), low), _mm_and_si128(h[s], high));
        uint8_t* at = out + 2 * j * kHalf + 32 * q + 16 * s;
        _mm_store_si128(reinterpret_cast<__m128i*>(at), first);
        _mm_store_si128(reinterpret_cast<__m128i*>(at + kHalf), second);
      }
    }
  }
}

void split(const uint32_t* __restrict words, uint64_t* __restrict out, int64_t step) {
#pragma GCC unroll 8
  for (int g = 0; g < kPieceGroups; ++g) {
    const int bit = static_cast<int>(g * kNibbleGroup), shift = bit % 32;
    const uint32_t* w = words + bit / 32 * 16;
    for (int l = 0; l < 16; ++l) {
      uint64_t x = (w[l] | static_cast<uint64_t>(w[16 + l]) << 32) >> shift;
      if (shift > 4) x |= static_cast<uint64_t>(w[32 + l]) << (64 - shift);
      out[g * step + l] = x;
    }
  }
}

// What bit i of a group counts in every lane: 0 or 1 in both nibbles.
template <int i>
inline typename V::Reg bit_of(const uint8_t* group) {
  return V::bit_and(V::template shift_right<i % 4>(V::load(group + i / 4 * kHalf)), V::set1(0x11));
}

// For bits i .. 4 of a table: by how much bit 1 counts more than bit 0, and in `entry` the sum for all bits 0.
template <int t, bool two_planes, int i = 0>
inline void prepare_table(const uint8_t* zero, const uint8_t* one, typename V::Reg (&step)[5], typename V::Reg& entry) {
  const typename V::Reg z = bit_of<5 * t + i>(zero);
  entry = V::add(entry, z);
  if constexpr (two_planes) {
    step[i] = V::sub(bit_of<5 * t + i>(one), z);
  } else {
    step[i] = V::sub(V::set1(0x11), V::add(z, z));
  }
  if constexpr (i < 4) prepare_table<t, two_planes, i + 1>(zero, one, step, entry);
}

// Computes the entries in Gray code order, each by one addition to the previous one; bit 4 is a second chain.
template <bool two_planes, int t = 0>
inline void build_tables(const uint8_t* zero, const uint8_t* one, uint8_t* table) {
  typename V::Reg step[5], entry = V::zero();
  prepare_table<t, two_planes>(zero, one, step, entry);
  V::store(table, entry);
  V::store(table + 16 * kHalf, V::add(entry, step[4]));
#pragma GCC unroll 16
  for (int g = 1; g < 16; ++g) {
    const int code = g ^ (g >> 1), i = __builtin_ctz(static_cast<unsigned>(g));
    entry = (code >> i & 1) != 0 ? V::add(entry, step[i]) : V::sub(entry, step[i]);
    V::store(table + code * kHalf, entry);
    V::store(table + (16 + code) * kHalf, V::add(entry, step[4]));
  }
  if constexpr (t + 1 < kNibbleTables) build_tables<two_planes, t + 1>(zero, one, table + kTableBytes);
}

void build(const uint8_t* zero, const uint8_t* one, uint8_t* tables) {
  if (one == nullptr) {
    build_tables<false>(zero, one, tables);
  } else {
    build_tables<true>(zero, one, tables);
  }
}

// The entry of table t of a group that 60 bits of the other operand select.
template <int t>
inline typename V::Reg look_up_one(const uint8_t* tables, uint64_t word) {
  constexpr int kEntryShift = __builtin_ctzll(static_cast<uint64_t>(kHalf)), kRotate = (64 + 5 * t - kEntryShift) % 64;
  const uint64_t transposed = kRotate == 0 ? word : (word >> kRotate) | (word << ((64 - kRotate) % 64));
  return V::load(tables + t * kTableBytes + (transposed & ((kNibbleEntries - 1) << kEntryShift)));
}
template <int j>
inline typename V::Reg look_up_three(const uint8_t* tables, uint64_t word) {
  return V::add(V::add(look_up_one<3 * j>(tables, word), look_up_one<3 * j + 1>(tables, word)),
                look_up_one<3 * j + 2>(tables, word));
}

struct Counts {
  typename V::Reg low, high;
};
inline void look_up_word(const uint8_t* tables, uint64_t word, Counts& c) {
  const typename V::Reg low = V::set1(0x0F), high = V::set1(static_cast<char>(0xF0));
  typename V::Reg x = look_up_three<0>(tables, word), y = look_up_three<1>(tables, word);
  c.low = V::add(c.low, V::add(V::bit_and(x, low), V::bit_and(y, low)));
  const typename V::Reg first = V::average(V::bit_and(x, high), V::bit_and(y, high));
  x = look_up_three<2>(tables, word);
  y = look_up_three<3>(tables, word);
  c.low = V::add(c.low, V::add(V::bit_and(x, low), V::bit_and(y, low)));
  const typename V::Reg second = V::average(V::bit_and(x, high), V::bit_and(y, high));
  // A multiple of 4 and at most 240, so the 16-bit shift carries nothing between bytes.
  c.high = V::add(c.high, V::template shift_right<2>(V::average(first, second)));
  V::keep(c.low, c.high);
}

inline void widen(typename V::Reg bytes, uint16_t* sums) {
  constexpr int64_t kWords = kHalf / 2;
  V::store(sums, V::add16(V::load(sums), V::bit_and(bytes, V::set1_16(0xFF))));
  V::store(sums + kWords, V::add16(V::load(sums + kWords), V::template shift_right<8>(bytes)));
}

template <int groups, int planes>
void look_up_rows(const NibblePass& pass) {
  const uint8_t* tables = pass.tables;
  const uint64_t* words[2][2] = {{pass.words[0][0], pass.words[0][1]}, {pass.words[1][0], pass.words[1][1]}};
  uint8_t* bytes = pass.bytes;
  uint16_t* sums = pass.sums;
  const bool first = pass.first, last = pass.last;
  const int64_t rows = pass.rows;
  for (int64_t r = 0; r < rows; ++r, bytes += kLanes, sums += kLanes) {
    Counts c{V::zero(), V::zero()};
    if (!first) c = {V::load(bytes), V::load(bytes + kHalf)};
#pragma GCC unroll 2
    for (int p = 0; p < planes; ++p) {
      look_up_word(tables, words[0][p][r], c);
      if constexpr (groups == 2) look_up_word(tables + kNibbleTables * kTableBytes, words[1][p][r], c);
    }
    if (last) {
      widen(c.low, sums);
      widen(c.high, sums + kHalf);
    } else {
      V::store(bytes, c.low);
      V::store(bytes + kHalf, c.high);
    }
  }
}

void look_up(const NibblePass& pass) {
  if (pass.groups == 2) return pass.planes == 2 ? look_up_rows<2, 2>(pass) : look_up_rows<2, 1>(pass);
  return pass.planes == 2 ? look_up_rows<1, 2>(pass) : look_up_rows<1, 1>(pass);
}

void transpose(const uint16_t* in, int64_t step, uint16_t* out, int64_t out_step) {
  for (int64_t lane = 0; lane < kLanes; lane += 8) {
    __m128i a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = _mm_load_si128(reinterpret_cast<const __m128i*>(in + i * step + lane));
#pragma GCC unroll 3
    for (int level = 0; level < 3; ++level) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
        b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) a[i] = b[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) _mm_store_si128(reinterpret_cast<__m128i*>(out + (lane + i) * out_step), a[i]);
  }
}

void write(const NibbleOutput& o) {
  const uint16_t* __restrict counts = o.counts;
  const int32_t* __restrict base = o.base;
  const float* __restrict sb = o.sb, * __restrict bias = o.bias;
  float* __restrict c = o.c;
  const int32_t factor = o.factor;
  const float sa = o.sa;
  if (bias == nullptr) {
    for (int64_t j = 0; j < o.columns; ++j) c[j] = static_cast<float>(base[j] + factor * counts[j]) * (sa * sb[j]);
  } else {
    for (int64_t j = 0; j < o.columns; ++j)
      c[j] = static_cast<float>(base[j] + factor * counts[j]) * (sa * sb[j]) + bias[j];
  }
}

int32_t count(const uint32_t* words, int64_t count, int64_t step) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += _mm_popcnt_u32(words[i * step]);
  return sum;
}

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail
