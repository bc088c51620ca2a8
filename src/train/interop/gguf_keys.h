// A decoder as the metadata of a GGUF file, and back.
#pragma once

#include "bitgrad/io/gguf.h"
#include "train/interop/tensor_map.h"

namespace bitgrad::interop {

// bitgrad.*: what other programs pass over.
inline constexpr std::string_view kActivationKey = "bitgrad.activation";
inline constexpr std::string_view kTokenizerKey = "bitgrad.tokenizer";

// general.architecture and the keys of the family. Throws Error for frequencies that are scaled (rope_factor).
GgufMetadata decoder_keys(const Decoder& decoder, const Family& family);
// And back; what tensors say (biases, a head of its own) is read off the file's list. Throws Error(kData).
struct GgufDecoder {
  const Family* family = nullptr;
  Decoder decoder = {};
};
GgufDecoder decoder_of(const GgufFile& file);

}  // namespace bitgrad::interop
