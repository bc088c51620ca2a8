#include "interop/gguf_keys.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::interop {
namespace {

// llama.cpp ends a text at each of them.
constexpr const char* kEnds[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                 "tokenizer.ggml.eom_token_id"};

}  // namespace

GgufMetadata id_keys(const Tokenizer& tokenizer, int64_t vocabulary, const ModelOrigin& origin) {
  GgufMetadata out;
  const auto add = [&](const char* key, int64_t id) {
    if (id >= 0) out.emplace_back(key, GgufValue::uint32(id));
  };
  const std::vector<int32_t> ends = end_ids(origin, &tokenizer), first = first_ids(origin);
  const int64_t unused = tokenizer.vocabulary() < vocabulary ? tokenizer.vocabulary() : -1;  // an id that no text has
  const int64_t end = ends.empty() ? unused : ends[0];
  // A model trained here reads its first text after the end of another one.
  const int64_t otherwise = origin.begin >= 0 || !origin.name.empty() ? origin.begin : end;
  add("tokenizer.ggml.bos_token_id", first.empty() ? otherwise : first[0]);
  add(kEnds[0], end);
  for (size_t i = 1; i < std::min(ends.size(), std::size(kEnds)); ++i) add(kEnds[i], ends[i]);
  add("tokenizer.ggml.padding_token_id", origin.pad);
  out.emplace_back("tokenizer.ggml.add_bos_token", GgufValue::boolean(!first.empty()));
  return out;
}

std::vector<std::pair<std::string, std::string>> lost_ids(const Tokenizer* tokenizer, int64_t vocabulary,
                                                          const ModelOrigin& origin) {
  std::vector<std::pair<std::string, std::string>> lost;
  if (tokenizer == nullptr || tokenizer->kind() != "bpe") return lost;
  const std::vector<int32_t> ends = end_ids(origin, tokenizer), first = first_ids(origin);
  if (ends.size() > std::size(kEnds))
    lost.emplace_back("end of texts",
                      concat("GGUF holds ", std::size(kEnds), " of the ", ends.size(),
                             " ids that end a text; not written: ", joined(std::span(ends).subspan(std::size(kEnds)))));
  if (ends.empty() && tokenizer->vocabulary() >= vocabulary)
    lost.emplace_back("end of texts", "no id is known: eos_token_id is not written, and llama.cpp uses its default");
  if (first.size() > 1)
    lost.emplace_back("begin of texts", concat("texts begin with the ids ", joined(first),
                                               "; GGUF holds one: llama.cpp puts ", first[0], " alone"));
  return lost;
}

}  // namespace bitgrad::interop
