#include "bitgrad/base/rng.h"

#include <cmath>

#include <cstring>

#include "base/philox_fill.h"
#include "base/simd.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/math.h"

namespace bitgrad {
namespace {

// Slicing-by-8 (Kounavis and Berry, 2008): table[t][b] is the CRC of byte b followed by t zero bytes.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
    tables[0][b] = crc;
  }
  for (uint32_t b = 0; b < 256; ++b)
    for (size_t t = 1; t < 8; ++t) tables[t][b] = (tables[t - 1][b] >> 8) ^ tables[0][tables[t - 1][b] & 0xFFu];
  return tables;
}
constexpr CrcTables kCrcTables = make_crc_tables();

uint32_t little_endian32(const uint8_t* p) {
  return uint32_t{p[0]} | (uint32_t{p[1]} << 8) | (uint32_t{p[2]} << 16) | (uint32_t{p[3]} << 24);
}

constexpr size_t kLongText = 512;  // bytes from which asking for the ISA costs nothing

// The instruction of SSE4.2, which every CPU with AVX2 has.
#pragma GCC push_options
#pragma GCC target("sse4.2")
uint32_t crc_words(const uint8_t*& p, size_t& bytes, uint32_t crc) {
  uint64_t sum = crc;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word = 0;
    __builtin_memcpy(&word, p, sizeof(word));
    sum = _mm_crc32_u64(sum, word);
  }
  return static_cast<uint32_t>(sum);
}
#pragma GCC pop_options

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  const auto& t = kCrcTables;
  const uint8_t* p = static_cast<const uint8_t*>(data);
  crc = ~crc;
  if (bytes >= kLongText && (cpu_isa() & isa::kAvx2) != 0) crc = crc_words(p, bytes, crc);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    const uint32_t a = crc ^ little_endian32(p);
    const uint32_t b = little_endian32(p + 4);
    crc = t[7][a & 0xFFu] ^ t[6][(a >> 8) & 0xFFu] ^ t[5][(a >> 16) & 0xFFu] ^ t[4][a >> 24] ^  //
          t[3][b & 0xFFu] ^ t[2][(b >> 8) & 0xFFu] ^ t[1][(b >> 16) & 0xFFu] ^ t[0][b >> 24];
  }
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xFFu];
  return ~crc;
}

float RandomStream::normal(uint64_t e) const {
  const PhiloxBlock w = block(e / 4);
  const size_t pair = (e % 4) / 2 * 2;
  const float u1 = static_cast<float>((w[pair] >> 8) + 1) * 0x1p-24f;  // in (0, 1], so that its logarithm is finite
  const double u2 = static_cast<double>(w[pair + 1] >> 8) * 0x1p-24;   // in [0, 1)
  const double r = std::sqrt(-2.0 * static_cast<double>(math::log(u1)));
  return static_cast<float>(r * (e % 2 == 0 ? math::cos_turns(u2) : math::sin_turns(u2)));
}

void RandomStream::fill_bits16(uint64_t first, int64_t n, uint16_t* out) const {
  for (; n > 0 && first % 8 != 0; --n) *out++ = bits16(first++);
  const int64_t blocks = n / 8;
  detail::philox_fill(*this, first / 8, blocks, out);
  first += static_cast<uint64_t>(blocks) * 8;
  out += blocks * 8;
  n -= blocks * 8;
  if (n == 0) return;
  const PhiloxBlock w = block(first / 8);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = w[static_cast<size_t>(i / 2)];
    out[i] = static_cast<uint16_t>(i % 2 == 0 ? word : word >> 16);
  }
}

}  // namespace bitgrad
