// Converts config.json of Hugging Face to the numbers of a decoder, and back.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/interop/model_origin.h"
#include "interop/compressed_tensors.h"
#include "interop/tensor_map.h"

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
  std::vector<CodeScheme> schemes = {};             // of compressed-tensors; empty: none
  std::vector<std::string> read = {}, unused = {};  // keys of config.json
};

// Parses the text of a config.json, which is untrusted: numbers are checked against limits. Throws Error(kData) that
// names the key. `where`: the path, for errors.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& where);
// The inverse. ends: ids that end a text.
Json hugging_face_config(const HuggingFaceConfig& config, const std::vector<int32_t>& ends, const ModelOrigin& origin);

}  // namespace bitgrad::interop
