// A decoder as the metadata of a GGUF file, and back.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/io/gguf.h"
#include "interop/tensor_map.h"

namespace bitgrad::interop {

// Keys bitgrad.*, which other programs ignore.
inline constexpr std::string_view kActivationKey = "bitgrad.activation";
inline constexpr std::string_view kTokenizerKey = "bitgrad.tokenizer";

// general.architecture and the keys of the family. Throws Error for scaled frequencies (rope_factor).
GgufMetadata decoder_keys(const Decoder& decoder, const Family& family);
// The inverse. What only tensors tell (biases, a separate head) is taken from the file's list. Throws Error(kData).
struct GgufDecoder {
  const Family* family = nullptr;
  Decoder decoder = {};
};
GgufDecoder decoder_of(const GgufFile& file);
// Which keys of a file are read, and which are not used. Throws Error(kData) that lists those of the architecture that
// are not known and say that the model computes something else.
void list_keys(const GgufFile& file, std::vector<std::string>& read, std::vector<std::string>& unused);

}  // namespace bitgrad::interop
