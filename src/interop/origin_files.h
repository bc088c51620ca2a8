// The files of a Hugging Face folder that say how texts begin and end, and back.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/interop/model_origin.h"

namespace bitgrad::interop {

// From config.json, generation_config.json (which counts first), tokenizer_config.json and tokenizer.json. Throws
// Error(kData) for damaged ones.
// `notes` get what is guessed, left out, or said differently by two files.
ModelOrigin origin_of_folder(const std::string& folder, std::vector<std::string>& notes);
// Writes generation_config.json, and tokenizer_config.json for a tokenizer.
void write_origin(const std::string& folder, const ModelOrigin& origin, const Tokenizer* tokenizer);

}  // namespace bitgrad::interop
