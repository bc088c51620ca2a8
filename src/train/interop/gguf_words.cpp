#include "train/interop/gguf_words.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace bitgrad::interop {
namespace {

struct WordPattern {
  std::string_view name;
  const char* pattern;  // nullptr: built into ByteLevel (GPT-2)
  bool whole = false;   // a word that is a token is that token, whatever the merges make of it (ignore_merges)
  bool begins = false;  // texts begin with bos, unless add_bos_token says otherwise
};
// Patterns from openai/gpt-2 (src/encoder.py), meta-llama/llama3 (llama/tokenizer.py) and QwenLM/Qwen
// (tokenization_qwen.py), as their tokenizer.json writes them.
constexpr WordPattern kWords[] = {
    {"gpt-2", nullptr},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, true},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};
// Other names of llama.cpp for the same (src/llama-vocab.cpp).
constexpr std::pair<std::string_view, std::string_view> kSame[] = {{"llama3", "llama-bpe"},
                                                                   {"llama-v3", "llama-bpe"},
                                                                   {"falcon3", "llama-bpe"},
                                                                   {"pixtral", "llama-bpe"},
                                                                   {"deepseek-r1-qwen", "qwen2"},
                                                                   {"phi-2", "gpt-2"},
                                                                   {"mpt", "gpt-2"},
                                                                   {"olmo", "gpt-2"},
                                                                   {"jais", "gpt-2"},
                                                                   {"roberta-bpe", "gpt-2"}};
// What llama.cpp does where the file has no name, or "default": each pattern cuts the pieces of the one before.
constexpr const char* kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)",
                                    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                                    R"(\p{N}+)", R"([0-9][0-9][0-9])"};

const WordPattern* find_words(std::string_view name) {
  for (const auto& [other, same] : kSame)
    if (name == other) name = same;
  const auto* const found =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const WordPattern& words) { return words.name == name; });
  return found == std::end(kWords) ? nullptr : found;
}

Json split_of(const char* pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

void collect_steps(const Json& step, std::vector<const Json*>& out) {
  if (step.is_object() && step.value("type", "") == "Sequence") {
    for (const Json& part : step.at("pretokenizers")) collect_steps(part, out);
    return;
  }
  out.push_back(&step);
}

}  // namespace

std::string words_name(const Json& file) {
  if (!file.contains("pre_tokenizer")) return "";
  std::vector<const Json*> steps;
  collect_steps(file.at("pre_tokenizer"), steps);
  const Json& last = *steps.back();
  if (last.value("type", "") != "ByteLevel" || last.value("add_prefix_space", true)) return "";
  if (steps.size() == 1) return last.value("use_regex", true) ? "gpt-2" : "";
  const Json& split = *steps[0];
  if (steps.size() != 2 || split.value("type", "") != "Split" || last.value("use_regex", true)) return "";
  if (!split.at("pattern").contains("Regex") || split.value("behavior", "") != "Isolated") return "";
  for (const WordPattern& words : kWords)
    if (words.pattern != nullptr && split.at("pattern").at("Regex") == words.pattern) return std::string(words.name);
  return "";
}

Json words_of_name(std::string_view name) {
  const WordPattern* const found = find_words(name);
  if (found == nullptr && name != kDefaultWords) return nullptr;
  const bool own = found != nullptr && found->pattern == nullptr;
  Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}};
  if (own) return bytes;
  Json steps = Json::array();
  if (found != nullptr)
    steps.push_back(split_of(found->pattern));
  else
    for (const char* pattern : kDefault) steps.push_back(split_of(pattern));
  steps.push_back(std::move(bytes));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

bool whole_words_of_name(std::string_view name) {
  const WordPattern* const found = find_words(name);
  return found != nullptr && found->whole;
}
bool begins_of_name(std::string_view name) {
  const WordPattern* const found = find_words(name);
  return found != nullptr && found->begins;
}

}  // namespace bitgrad::interop
