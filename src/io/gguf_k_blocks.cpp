// Blocks with several scales: Q2_K to Q6_K. 256 elements in runs of 16 or 32, each with its own small integer scale
// (and minimum), in units of the block's d (and dmin). Read only; each operation in fp32, as in ggml's
// dequantize_row_q*_K (ggml/src/ggml-quants.c).
#include <cstring>

#include "bitgrad/dtype/bf16.h"
#include "io/gguf_format.h"

namespace bitgrad::gguf {
namespace {

float half_value(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return fp16_to_float(h);
}

// Element 128 h + 32 l + i is two-bit field l of byte 32 h + i.
int two_bits(const uint8_t* p, int j) { return p[j / 128 * 32 + j % 32] >> 2 * (j / 32 % 4) & 3; }

// 16 bytes of scale (low nibble) and minimum (high nibble) | 64 bytes of fields | d | dmin
void decode_q2_k(const uint8_t* p, float* y) {
  const float d = half_value(p + 80), dmin = half_value(p + 82);
  for (int j = 0; j < 256; ++j) {
    const int scale = p[j / 16];
    y[j] = d * static_cast<float>(scale & 15) * static_cast<float>(two_bits(p + 16, j)) -
           dmin * static_cast<float>(scale >> 4);
  }
}

// 32 bytes of high bits (bit 4 h + l of byte i) | 64 bytes of fields | 16 scales of 6 bits in 12 bytes | d
void decode_q3_k(const uint8_t* p, float* y) {
  const uint8_t *fields = p + 32, *packed = p + 96;
  const float d = half_value(p + 108);
  for (int j = 0; j < 256; ++j) {
    const int s = j / 16;
    const int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4, high = packed[8 + s % 4] >> 2 * (s / 4) & 3;
    const bool whole = (p[j % 32] >> j / 32 & 1) != 0;
    y[j] = d * static_cast<float>((low | high << 4) - 32) * static_cast<float>(two_bits(fields, j) - (whole ? 0 : 4));
  }
}

struct ScaleAndLowest {
  int scale, lowest;
};
// Scale and minimum of run s < 8 of 32 elements: 6 bits each, packed in 12 bytes.
ScaleAndLowest six_bits(const uint8_t* p, int s) {
  if (s < 4) return {p[s] & 63, p[s + 4] & 63};
  return {(p[s + 4] & 15) | (p[s - 4] >> 6) << 4, p[s + 4] >> 4 | (p[s] >> 6) << 4};
}

// d | dmin | 12 bytes of scales and minima | [high bits: bit s of byte i] | nibbles: runs 2 k and 2 k + 1 are the low
// and high halves of the 32 bytes from byte 32 k on.
void decode_nibbles(const uint8_t* p, const uint8_t* high, const uint8_t* nibbles, float* y) {
  const float d = half_value(p), dmin = half_value(p + 2);
  for (int s = 0; s < 8; ++s) {
    const ScaleAndLowest run = six_bits(p + 4, s);
    const float scale = d * static_cast<float>(run.scale), lowest = dmin * static_cast<float>(run.lowest);
    for (int i = 0; i < 32; ++i) {
      const int byte = nibbles[s / 2 * 32 + i], low = s % 2 == 0 ? byte & 15 : byte >> 4;
      const int top = high != nullptr ? (high[i] >> s & 1) * 16 : 0;
      y[32 * s + i] = scale * static_cast<float>(low + top) - lowest;
    }
  }
}
void decode_q4_k(const uint8_t* p, float* y) { decode_nibbles(p, nullptr, p + 16, y); }
void decode_q5_k(const uint8_t* p, float* y) { decode_nibbles(p, p + 16, p + 48, y); }

// 128 bytes of low nibbles | 64 bytes of fields | 16 int8 scales | d. Element i of run l (of 32) in half h has its
// nibble in byte 64 h + 32 (l % 2) + i: the low one if l < 2, otherwise the high one.
void decode_q6_k(const uint8_t* p, float* y) {
  const float d = half_value(p + 208);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, l = j / 32 % 4, i = j % 32;
    const int byte = p[64 * half + 32 * (l % 2) + i], low = l < 2 ? byte & 15 : byte >> 4;
    const int number = (low | two_bits(p + 128, j) << 4) - 32;
    y[j] = d * static_cast<float>(static_cast<int8_t>(p[192 + j / 16])) * static_cast<float>(number);
  }
}

}  // namespace

DecodeValues value_decoder(GgufType type) {
  switch (type) {
    case GgufType::kQ2_K:
      return decode_q2_k;
    case GgufType::kQ3_K:
      return decode_q3_k;
    case GgufType::kQ4_K:
      return decode_q4_k;
    case GgufType::kQ5_K:
      return decode_q5_k;
    case GgufType::kQ6_K:
      return decode_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace bitgrad::gguf
