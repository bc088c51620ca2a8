// Ids that a tokenizer.json of Hugging Face gives to tokens, and those that it puts around texts (post_processor).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"

namespace bitgrad::interop {

struct TextTemplate {
  std::vector<Json> before = {}, after = {};  // ids as the file writes them
};

// Throws JsonError for a damaged post_processor.
TextTemplate text_template(const Json& tokenizer);
// Null if neither the tokenizer.json nor the tokenizer_config.json has the token.
Json id_of_token(const Json& tokenizer, const Json& tokenizer_config, const std::string& text);
// The text that names an id in a tokenizer.json: of byte-level BPE, characters stand for bytes. Empty: it has none.
std::string token_of_id(const Json& tokenizer, int32_t id);

}  // namespace bitgrad::interop
