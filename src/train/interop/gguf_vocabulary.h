// Tokenizers as the metadata of a GGUF file, and back.
#pragma once

#include <memory>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/io/gguf.h"

namespace bitgrad::interop {

// tokenizer.ggml.* for a model of `vocabulary` ids, of which those behind the tokenizer's stand for nothing; and the
// tokenizer itself under bitgrad.tokenizer. nullptr: a vocabulary without texts. chars and bytes are a byte-level BPE
// whose merges make the characters of several bytes. Throws Error for kinds and splittings of words that llama.cpp has
// no name for.
GgufMetadata vocabulary_keys(const Tokenizer* tokenizer, int64_t vocabulary);

// That of a file. nullptr: none that is known here, `note` says why. Throws Error(kData) for a damaged one, and for one
// of more ids than the model has.
std::shared_ptr<const Tokenizer> vocabulary_of(const GgufFile& file, int64_t vocabulary, std::string& note);

}  // namespace bitgrad::interop
