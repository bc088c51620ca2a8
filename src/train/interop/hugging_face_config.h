// config.json of Hugging Face and a decoder's numbers, in both directions.
#pragma once

#include <string>

#include "bitgrad/base/json.h"
#include "bitgrad/train/decoder.h"
#include "train/interop/tensor_map.h"

namespace bitgrad::interop {

// How the linear weights are held.
enum class HuggingFaceWeights : uint8_t {
  kFloats,
  kTernary,         // BitNet: packed, the product is multiplied by weight_scale (linear_class autobitlinear)
  kTernaryDivided,  // the product is divided by it (linear_class bitlinear)
};

struct HuggingFaceConfig {
  const Family* family = nullptr;
  Decoder decoder = {};
  HuggingFaceWeights weights = HuggingFaceWeights::kFloats;
};

// From the text of a config.json, which anybody may have written. Throws Error(kData) that names the key; numbers are
// held against limits. `where`: the path, for errors.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& where);
// And back; end: id of the tokenizer's mark, -1: none.
Json hugging_face_config(const HuggingFaceConfig& config, int64_t end);

}  // namespace bitgrad::interop
