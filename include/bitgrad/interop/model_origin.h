// What the files of another program say about a model beside its layers and its tokenizer. A model file keeps it
// (metadata key bitgrad.origin), a run that starts from the file hands it on, generate and exports use it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/data/tokenizer.h"

namespace bitgrad {

struct ModelOrigin {
  std::string name = {};            // of the folder or file, for adapter_config.json
  int64_t context = 0;              // positions that the model was made for; 0: unknown
  std::vector<int32_t> end = {};    // ids that end a text; empty: that of the tokenizer
  int32_t begin = -1, pad = -1;     // -1: none
  bool add_begin = false;           // texts begin with `first`, or else with `begin`
  std::vector<int32_t> first = {};  // ids that are put before texts; empty: `begin` alone
  Json generation = nullptr;        // generation_config.json; null: none
  Json tokenizer_config = nullptr;  // tokenizer_config.json; null: none
};

std::string to_text(const ModelOrigin& origin);
// The inverse; an empty text is a model without an origin. The text is untrusted: throws Error(kData) that names
// `where`.
ModelOrigin parse_origin(const std::string& text, const std::string& where);
// The ids that end a text: those of the origin, or else the tokenizer's; empty if there are none.
std::vector<int32_t> end_ids(const ModelOrigin& origin, const Tokenizer* tokenizer);
// The ids that texts begin with; empty if there are none.
std::vector<int32_t> first_ids(const ModelOrigin& origin);
// Its template of chats, which clients apply; empty: none. Of several, the one that is named default.
std::string chat_template_of(const ModelOrigin& origin);
// Puts `first_ids` before the ids of a text, unless these begin with them.
void add_begin(const ModelOrigin& origin, std::vector<int32_t>& ids);
// The ids that a model reads for a prompt, with those that texts begin with; at least one. `where` names the prompt in
// errors. Throws Error for an empty text that nothing begins, Error(kData) for one that the tokenizer cannot take.
std::vector<int32_t> prompt_ids(const ModelOrigin& origin, const Tokenizer& tokenizer, const std::string& text,
                                std::string_view where);

}  // namespace bitgrad
