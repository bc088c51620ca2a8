// Shared by reader and writer of GGUF files: names, limits, types of values, blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/io/gguf.h"

namespace bitgrad::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF files are read and written as they lie in memory");

inline constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
inline constexpr uint32_t kVersion = 3, kOldestVersion = 2;
inline constexpr uint32_t kArrayType = 9;
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr int64_t kAlignment = 32;
inline constexpr size_t kMostNameBytes = 63;  // for tensors; ggml reserves 64 bytes including a final zero
inline constexpr size_t kMostKeyBytes = 65535;
inline constexpr size_t kMostAxes = 4;
inline constexpr int64_t kMostElements = int64_t{1} << 58;

// The types of values, by their ids.
struct ValueType {
  std::string_view name;
  int64_t bytes;           // of a text at least: its length field
  bool is_signed = false;  // of integers
  size_t alternative = 0;  // of GgufValue::Data
};
inline constexpr ValueType kValueTypes[] = {
    {"uint8", 1},           {"int8", 1, true},  {"uint16", 2},           {"int16", 2, true},
    {"uint32", 4},          {"int32", 4, true}, {"float32", 4, true, 1}, {"bool", 1},
    {"text", 8, false, 2},  {"array", 0},       {"uint64", 8},           {"int64", 8, true},
    {"float64", 8, true, 1}};
constexpr const ValueType& value_type(GgufValue::Type type) { return kValueTypes[static_cast<size_t>(type)]; }

template <typename... Parts>
[[noreturn]] void fail_gguf(const std::string& path, const Parts&... parts) {
  fail_with(ErrorCode::kData, "gguf", printable(concat("'", path, "': ", parts...)));
}

// Bytes of a tensor; -1 if the shape is negative, too large or not a multiple of the block size.
int64_t tensor_bytes(const GgufTypeInfo& type, const std::vector<int64_t>& shape);

constexpr int64_t aligned(int64_t offset, int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

// ---- ggml blocks as codes: the code of each element, and the block's scale and offset. Block layouts:
// github.com/ggml-org/ggml, ggml/src/ggml-common.h; values: ggml/src/ggml-quants.c, dequantize_row_*.

inline constexpr int64_t kMostBlock = 256;

// value = d * number + m; d and m are fp16.
struct Block {
  int numbers[kMostBlock] = {};
  uint16_t d = 0, m = 0;
};

// A type whose blocks have codes with one scale.
struct BlockCodec {
  GgufType type;
  DType codes;          // when read; of Q2_0 without a code 3
  int lowest, highest;  // range of codes; for 1-bit signs: only -1 and +1
  bool signs;
  bool offset;                                      // has an offset m, behind d
  int scale_at;                                     // where d is; the codes are at byte 0, or behind d and m
  void (*put)(const Block& block, uint8_t* bytes);  // the codes alone
  void (*take)(const uint8_t* bytes, Block& block);

  int codes_at() const { return scale_at > 0 ? 0 : offset ? 4 : 2; }
  void encode(const Block& block, uint8_t* bytes) const;
  void decode(const uint8_t* bytes, Block& block) const;
};
// nullptr for floats, integers, and types with several scales per block.
const BlockCodec* block_codec(GgufType type);

// The dtype of a type of plain floats or integers (none for I16); nullopt for block types.
std::optional<DType> plain_dtype(GgufType type);
bool is_float_type(GgufType type);

// Decodes one block of Q2_K to Q6_K, 256 values; nullptr for other types.
using DecodeValues = void (*)(const uint8_t* bytes, float* values);
DecodeValues value_decoder(GgufType type);

}  // namespace bitgrad::gguf
