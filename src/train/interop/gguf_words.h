// How byte-level BPE splits texts into words: llama.cpp's names, and the form in tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "bitgrad/base/json.h"

namespace bitgrad::interop {

// tokenizer.ggml.pre for a tokenizer.json; empty if no name is known.
std::string words_name(const Json& tokenizer_file);
// The pre_tokenizer for a name; null if it is not known.
Json words_of_name(std::string_view name);

}  // namespace bitgrad::interop
