// How byte-level BPE cuts texts into words, by llama.cpp's names and as a tokenizer.json says it.
#pragma once

#include <string>
#include <string_view>

#include "bitgrad/base/json.h"

namespace bitgrad::interop {

// tokenizer.ggml.pre of a tokenizer.json; empty: llama.cpp has no name for it that is known here.
std::string words_name(const Json& tokenizer_file);
// The pre_tokenizer of a name; null: not known here.
Json words_of_name(std::string_view name);

}  // namespace bitgrad::interop
