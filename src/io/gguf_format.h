// Shared by reader and writer of GGUF files: names, limits, sizes.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

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

// Bytes of a value of a fixed-size type; for a text the minimum (its length field).
constexpr int64_t value_bytes(GgufValue::Type type) {
  using Type = GgufValue::Type;
  switch (type) {
    case Type::kUint8:
    case Type::kInt8:
    case Type::kBool:
      return 1;
    case Type::kUint16:
    case Type::kInt16:
      return 2;
    case Type::kUint32:
    case Type::kInt32:
    case Type::kFloat32:
      return 4;
    case Type::kText:
    case Type::kUint64:
    case Type::kInt64:
    case Type::kFloat64:
      return 8;
  }
  return 0;
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
  int lowest, highest;  // range of codes; for 1-bit signs: only -1 and +1
  bool signs;
  bool offset;  // has an offset m
  void (*encode)(const Block& block, uint8_t* bytes);
  void (*decode)(const uint8_t* bytes, Block& block);
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
