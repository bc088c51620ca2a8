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

}  // namespace bitgrad::data
