// The factories of the built-in tokenizers.
#pragma once

#include <memory>
#include <string_view>

#include "bitgrad/data/tokenizer.h"

namespace bitgrad::data {

#define BITGRAD_TOKENIZER(name, factory, doc) std::shared_ptr<const Tokenizer> factory(std::string_view text);
#include "data/tokenizers.inc"
#undef BITGRAD_TOKENIZER

}  // namespace bitgrad::data
