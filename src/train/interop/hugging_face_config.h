// Converts config.json of Hugging Face to the numbers of a decoder, and back.
#pragma once

#include <string>

#include "bitgrad/base/json.h"
#include "bitgrad/train/decoder.h"
#include "train/interop/tensor_map.h"

namespace bitgrad::interop {

// How the linear weights are stored.
enum class HuggingFaceWeights : uint8_t {
  kFloats,
  kTernary,         // BitNet, packed: products are multiplied by weight_scale (linear_class autobitlinear)
  kTernaryDivided,  // products are divided by it (linear_class bitlinear)
};

struct HuggingFaceConfig {
  const Family* family = nullptr;
  Decoder decoder = {};
  HuggingFaceWeights weights = HuggingFaceWeights::kFloats;
};

// Parses the text of a config.json, which is untrusted: numbers are checked against limits. Throws Error(kData) that
// names the key. `where`: the path, for errors.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& where);
// The inverse. end: id of the tokenizer's end token, -1: none.
Json hugging_face_config(const HuggingFaceConfig& config, int64_t end);

}  // namespace bitgrad::interop
