// ggml blocks as codes: the code of each element, and the block's scale and offset. Block layouts:
// github.com/ggml-org/ggml, ggml/src/ggml-common.h; values: ggml/src/ggml-quants.c, dequantize_row_*.
#pragma once

#include <cstdint>
#include <optional>

#include "bitgrad/dtype/dtype.h"
#include "bitgrad/io/gguf.h"

namespace bitgrad::gguf {

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
