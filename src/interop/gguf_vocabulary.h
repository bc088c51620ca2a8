// Tokenizers as the metadata of a GGUF file, and back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/io/gguf.h"

namespace bitgrad::interop {

// tokenizer.ggml.* for a model of `vocabulary` ids; ids beyond the tokenizer's are unused. The tokenizer itself is
// stored under bitgrad.tokenizer. nullptr: a vocabulary without texts. chars and bytes are written as tokenizer model
// rwkv (longest match), bpe as gpt2. Throws Error for other kinds, and for word splitting that llama.cpp has no name
// for.
// `origin` has the ids that begin and end a text.
GgufMetadata vocabulary_keys(const Tokenizer* tokenizer, int64_t vocabulary, const ModelOrigin& origin);

// The tokenizer of a file. Returns nullptr if it is not supported; `notes` say why, and what was guessed. Throws
// Error(kData) for a damaged one, and for one with more ids than the model.
std::shared_ptr<const Tokenizer> vocabulary_of(const GgufFile& file, int64_t vocabulary,
                                               std::vector<std::string>& notes);
// The ids that begin and end a text. Throws Error(kData) for one that is not below `vocabulary`.
ModelOrigin origin_of_keys(const GgufFile& file, int64_t vocabulary);

}  // namespace bitgrad::interop
