// A decoder and its tokenizer as the metadata of a GGUF file, and back.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/io/gguf.h"
#include "interop/decoder_files.h"

namespace bitgrad::interop {

// Keys bitgrad.*, which other programs ignore.
inline constexpr std::string_view kActivationKey = "bitgrad.activation";
inline constexpr std::string_view kHiddenActivation = "hidden_activation";  // behind the architecture's name
inline constexpr std::string_view kTokenizerKey = "bitgrad.tokenizer";

// general.architecture and the keys of the family. Throws Error for scaled frequencies (rope_factor).
GgufMetadata decoder_keys(const Decoder& decoder, const Family& family);
// The inverse. What only tensors tell (biases, a separate head) is taken from the file's list. Throws Error(kData).
struct GgufDecoder {
  const Family* family = nullptr;
  Decoder decoder = {};
};
GgufDecoder decoder_of(const GgufFile& file);
// Which keys of a file are read, and which are not used. Throws Error(kData) that lists those of the architecture that
// are not known and say that the model computes something else.
void list_keys(const GgufFile& file, const Family& family, std::vector<std::string>& read,
               std::vector<std::string>& unused);

// ---- tokenizers

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

// ---- the ids that begin and end texts

// tokenizer.ggml.*_token_id and add_bos_token for a model of `vocabulary` ids. An id that nothing knows is not written.
GgufMetadata id_keys(const Tokenizer& tokenizer, int64_t vocabulary, const ModelOrigin& origin);
// What of these ids has no place there: names and texts for a report.
std::vector<std::pair<std::string, std::string>> lost_ids(const Tokenizer* tokenizer, int64_t vocabulary,
                                                          const ModelOrigin& origin);

// ---- how byte-level BPE splits texts into words: llama.cpp's names, and the form in tokenizer.json

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
