// Blocks of ggml as codes: the number of each element and the block's scale and offset. Layouts:
// github.com/ggml-org/ggml, ggml/src/ggml-common.h; of the values: ggml/src/ggml-quants.c, dequantize_row_*.
#pragma once

#include <cstdint>
#include <optional>

#include "bitgrad/dtype/dtype.h"
#include "bitgrad/io/gguf.h"

namespace bitgrad::gguf {

inline constexpr int64_t kMostBlock = 256;

// value = d * number + m, d and m as fp16.
struct Block {
  int numbers[kMostBlock] = {};
  uint16_t d = 0, m = 0;
};

// A type whose blocks hold codes of one scale.
struct BlockCodec {
  GgufType type;
  int lowest, highest;  // numbers that it holds; 1-bit signs: -1 and 1 alone
  bool signs;
  bool offset;  // has m
  void (*encode)(const Block& block, uint8_t* bytes);
  void (*decode)(const uint8_t* bytes, Block& block);
};
// nullptr: floats, integers, and types of several scales a block.
const BlockCodec* block_codec(GgufType type);

// The dtype of a type that holds plain floats or integers (I16 has none); none: blocks.
std::optional<DType> plain_dtype(GgufType type);
bool is_float_type(GgufType type);

// One block of Q2_K to Q6_K, 256 values; nullptr: another type.
using DecodeValues = void (*)(const uint8_t* bytes, float* values);
DecodeValues value_decoder(GgufType type);

}  // namespace bitgrad::gguf
