// The ids that begin and end texts, as keys of a GGUF file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/io/gguf.h"

namespace bitgrad::interop {

// tokenizer.ggml.*_token_id and add_bos_token for a model of `vocabulary` ids. An id that nothing knows is not written.
GgufMetadata id_keys(const Tokenizer& tokenizer, int64_t vocabulary, const ModelOrigin& origin);
// What of these ids has no place there: names and texts for a report.
std::vector<std::pair<std::string, std::string>> lost_ids(const Tokenizer* tokenizer, int64_t vocabulary,
                                                          const ModelOrigin& origin);

}  // namespace bitgrad::interop
