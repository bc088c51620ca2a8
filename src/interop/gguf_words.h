// How byte-level BPE splits texts into words: llama.cpp's names, and the form in tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "bitgrad/base/json.h"

namespace bitgrad::interop {

// tokenizer.ggml.pre for a tokenizer.json; empty if no name is known.
std::string words_name(const Json& tokenizer_file);
// What llama.cpp takes for a file that names none.
inline constexpr std::string_view kDefaultWords = "default";
// The pre_tokenizer for a name; null if it is not known.
Json words_of_name(std::string_view name);
// All names that words_of_name knows, separated by commas.
std::string known_words();
// What llama.cpp knows by the name, too: whether a word that is a token is taken whole (ignore_merges), and whether
// texts begin with the token bos where the file does not say it.
bool whole_words_of_name(std::string_view name);
bool begins_of_name(std::string_view name);

}  // namespace bitgrad::interop
