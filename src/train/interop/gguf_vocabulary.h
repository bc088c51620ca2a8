// Tokenizers as the metadata of a GGUF file, and back.
#pragma once

#include <memory>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/io/gguf.h"

namespace bitgrad::interop {

// tokenizer.ggml.* for a model of `vocabulary` ids; ids beyond the tokenizer's are unused. The tokenizer itself is
// stored under bitgrad.tokenizer. nullptr: a vocabulary without texts. chars and bytes are written as tokenizer model
// rwkv (longest match), bpe as gpt2. Throws Error for other kinds, and for word splitting that llama.cpp has no name
// for.
GgufMetadata vocabulary_keys(const Tokenizer* tokenizer, int64_t vocabulary);

// The tokenizer of a file. Returns nullptr if it is not supported; `note` says why. Throws Error(kData) for a damaged
// one, and for one with more ids than the model.
std::shared_ptr<const Tokenizer> vocabulary_of(const GgufFile& file, int64_t vocabulary, std::string& note);

}  // namespace bitgrad::interop
