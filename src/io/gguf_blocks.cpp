#include <cstring>
#include <utility>

#include "bitgrad/dtype/bf16.h"
#include "io/gguf_format.h"

namespace bitgrad::gguf {

namespace {

constexpr int kHalf = 16;  // Q4 and Q5: elements j and j + 16 share a byte

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return h;
}
void put_half(uint8_t* p, uint16_t h) { std::memcpy(p, &h, sizeof h); }

uint8_t byte_of(int number) { return static_cast<uint8_t>(number); }

// ---- int8 x 32
void put_bytes(const Block& b, uint8_t* p) {
  for (int j = 0; j < 32; ++j) p[j] = byte_of(b.numbers[j]);
}
void take_bytes(const uint8_t* p, Block& b) {
  for (int j = 0; j < 32; ++j) b.numbers[j] = static_cast<int8_t>(p[j]);
}

// ---- nibbles: element j in the low half of byte j, element j + 16 in the high half
template <int kBias>
void put_nibbles(const Block& b, uint8_t* p) {
  for (int j = 0; j < kHalf; ++j)
    p[j] = byte_of(((b.numbers[j] + kBias) & 15) | ((b.numbers[j + kHalf] + kBias) & 15) << 4);
}
template <int kBias>
void take_nibbles(const uint8_t* p, Block& b) {
  for (int j = 0; j < kHalf; ++j) {
    b.numbers[j] = (p[j] & 15) - kBias;
    b.numbers[j + kHalf] = (p[j] >> 4) - kBias;
  }
}

// ---- nibbles, with bit 4 of element j in bit j of a 32-bit word
template <int kBias>
void put_fives(const Block& b, uint8_t* p) {
  uint32_t high = 0;
  for (int j = 0; j < 2 * kHalf; ++j) high |= static_cast<uint32_t>((b.numbers[j] + kBias) >> 4 & 1) << j;
  std::memcpy(p, &high, sizeof high);
  put_nibbles<kBias>(b, p + 4);
}
template <int kBias>
void take_fives(const uint8_t* p, Block& b) {
  uint32_t high;
  std::memcpy(&high, p, sizeof high);
  take_nibbles<0>(p + 4, b);
  for (int j = 0; j < 2 * kHalf; ++j) b.numbers[j] += static_cast<int>(high >> j & 1) * 16 - kBias;
}

// ---- signs: bit j stands for +1 or -1
void put_signs(const Block& b, uint8_t* p) {
  for (int i = 0; i < 16; ++i) {
    int bits = 0;  // of eight elements
    for (int j = 0; j < 8; ++j) bits |= static_cast<int>(b.numbers[8 * i + j] > 0) << j;
    p[i] = byte_of(bits);
  }
}
void take_signs(const uint8_t* p, Block& b) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) b.numbers[8 * i + j] = 2 * (p[i] >> j & 1) - 1;
}

// ---- two-bit fields holding code + 1: four consecutive elements per byte
void put_fields(const Block& b, uint8_t* p) {
  std::memset(p, 0, 16);
  for (int j = 0; j < 64; ++j) p[j / 4] |= byte_of((b.numbers[j] + 1) << 2 * (j % 4));
}
void take_fields(const uint8_t* p, Block& b) {
  for (int j = 0; j < 64; ++j) b.numbers[j] = (p[j / 4] >> 2 * (j % 4) & 3) - 1;
}

// ---- the same with another order: element 128 h + 32 l + i is field l of byte 32 h + i
int run_byte(int j) { return j / 128 * 32 + j % 32; }
int run_shift(int j) { return 2 * (j / 32 % 4); }
void put_runs_of_fields(const Block& b, uint8_t* p) {
  std::memset(p, 0, 64);
  for (int j = 0; j < 256; ++j) p[run_byte(j)] |= byte_of((b.numbers[j] + 1) << run_shift(j));
}
void take_runs_of_fields(const uint8_t* p, Block& b) {
  for (int j = 0; j < 256; ++j) b.numbers[j] = (p[run_byte(j)] >> run_shift(j) & 3) - 1;
}

// ---- base 3: a byte stores digits (code + 1), most significant first, as ceil(256 v / 243). Runs: 32 bytes of five
// digits, 16 bytes of five, 4 bytes of four; digit n of byte i of a run is element `first` + n * bytes + i.
struct Run {
  int bytes, digits, first, at;
};
constexpr Run kRuns[] = {{32, 5, 0, 0}, {16, 5, 160, 32}, {4, 4, 240, 48}};
constexpr int kDigits = 5;
void put_digits(const Block& b, uint8_t* p) {
  for (const Run& run : kRuns)
    for (int i = 0; i < run.bytes; ++i) {
      int v = 0;
      for (int n = 0; n < kDigits; ++n) v = 3 * v + (n < run.digits ? b.numbers[run.first + n * run.bytes + i] + 1 : 0);
      p[run.at + i] = byte_of((v * 256 + 242) / 243);
    }
}
void take_digits(const uint8_t* p, Block& b) {
  for (const Run& run : kRuns)
    for (int i = 0; i < run.bytes; ++i) {
      uint32_t fraction = p[run.at + i];  // in units of 1/256
      for (int n = 0; n < run.digits; ++n) {
        fraction *= 3;
        b.numbers[run.first + n * run.bytes + i] = static_cast<int>(fraction >> 8) - 1;
        fraction &= 255;
      }
    }
}

constexpr BlockCodec kCodecs[] = {
    {GgufType::kQ8_0, dtypes::int8, -128, 127, false, false, 0, put_bytes, take_bytes},
    {GgufType::kQ5_0, dtypes::int5, -16, 15, false, false, 0, put_fives<16>, take_fives<16>},
    {GgufType::kQ5_1, dtypes::uint5, 0, 31, false, true, 0, put_fives<0>, take_fives<0>},
    {GgufType::kQ4_0, dtypes::int4, -8, 7, false, false, 0, put_nibbles<8>, take_nibbles<8>},
    {GgufType::kQ4_1, dtypes::uint4, 0, 15, false, true, 0, put_nibbles<0>, take_nibbles<0>},
    {GgufType::kTQ1_0, dtypes::ternary, -1, 1, false, false, 52, put_digits, take_digits},
    {GgufType::kTQ2_0, dtypes::ternary, -1, 1, false, false, 64, put_runs_of_fields, take_runs_of_fields},
    {GgufType::kQ2_0, dtypes::ternary, -1, 2, false, false, 0, put_fields, take_fields},
    {GgufType::kQ1_0, dtypes::bint1, -1, 1, true, false, 0, put_signs, take_signs},
};

}  // namespace

void BlockCodec::encode(const Block& b, uint8_t* p) const {
  put_half(p + scale_at, b.d);
  if (offset) put_half(p + scale_at + 2, b.m);
  put(b, p + codes_at());
}
void BlockCodec::decode(const uint8_t* p, Block& b) const {
  b.d = half_at(p + scale_at);
  if (offset) b.m = half_at(p + scale_at + 2);
  take(p + codes_at(), b);
}

const BlockCodec* block_codec(GgufType type) {
  for (const BlockCodec& codec : kCodecs)
    if (codec.type == type) return &codec;
  return nullptr;
}

std::optional<DType> plain_dtype(GgufType type) {
  constexpr std::pair<GgufType, DType> kPlain[] = {{GgufType::kF64, dtypes::fp64},  {GgufType::kF32, dtypes::fp32},
                                                   {GgufType::kBF16, dtypes::bf16}, {GgufType::kF16, dtypes::fp16},
                                                   {GgufType::kI64, dtypes::int64}, {GgufType::kI32, dtypes::int32},
                                                   {GgufType::kI8, dtypes::int8}};
  for (const auto& [plain, dtype] : kPlain)
    if (plain == type) return dtype;
  return std::nullopt;
}

bool is_float_type(GgufType type) {
  const std::optional<DType> dtype = plain_dtype(type);
  return dtype && dtype->is_float();
}

// Blocks with several scales: Q2_K to Q6_K. 256 elements in runs of 16 or 32, each with its own small integer scale
// (and minimum), in units of the block's d (and dmin). Read only; each operation in fp32, as in ggml's
// dequantize_row_q*_K (ggml/src/ggml-quants.c).

namespace {

float half_value(const uint8_t* p) { return fp16_to_float(half_at(p)); }

int two_bits(const uint8_t* p, int j) { return p[run_byte(j)] >> run_shift(j) & 3; }

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
  constexpr std::pair<GgufType, DecodeValues> kDecoders[] = {{GgufType::kQ2_K, decode_q2_k},
                                                             {GgufType::kQ3_K, decode_q3_k},
                                                             {GgufType::kQ4_K, decode_q4_k},
                                                             {GgufType::kQ5_K, decode_q5_k},
                                                             {GgufType::kQ6_K, decode_q6_k}};
  for (const auto& [decoded, decode] : kDecoders)
    if (decoded == type) return decode;
  return nullptr;
}

}  // namespace bitgrad::gguf
