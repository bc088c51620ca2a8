// Factories of the built-in tokenizers.
#pragma once

#include <memory>
#include <string_view>

#include "bitgrad/data/tokenizer.h"

namespace bitgrad::data {

using TokenizerPointer = std::shared_ptr<const Tokenizer>;

// nullptr if there is no kind of that name.
const TokenizerKind* find_tokenizer(std::string_view name);
std::vector<const TokenizerKind*> tokenizer_kinds();

TokenizerPointer make_chars_tokenizer(std::string_view text);
TokenizerPointer load_chars_tokenizer(const Json& content);
TokenizerPointer make_bytes_tokenizer(std::string_view text);
TokenizerPointer load_bytes_tokenizer(const Json& content);
TokenizerPointer load_bpe_tokenizer(const Json& content);
TokenizerPointer open_bpe_tokenizer(std::string_view bytes);
TokenizerPointer load_sentencepiece_tokenizer(const Json& content);
TokenizerPointer open_sentencepiece_tokenizer(std::string_view bytes);
// added: tokens of the files beside it, as added_tokens of a tokenizer.json; null: none.
TokenizerPointer make_sentencepiece_tokenizer(std::string model, Json added);
// Tokens that Hugging Face's files in a folder add to a tokenizer.model: added_tokens.json, added_tokens_decoder of
// tokenizer_config.json, added_tokens of tokenizer.json. null if there are none.
Json tokens_beside(const std::string& folder);
// The model as transformers and llama.cpp read it for tokenizer_class LlamaTokenizer in tokenizer_config.json: texts
// are not normalized, whatever the model says.
std::string pieces_as_transformers(std::string model, const std::string& folder);

}  // namespace bitgrad::data
