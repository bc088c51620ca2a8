#include "interop/gguf_keys.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace bitgrad::interop {
namespace {

struct WordPattern {
  std::string_view name;
  // Each cuts the pieces of the one before.
  std::array<const char*, 4> patterns;
  bool whole = false;   // a word that is a token is that token, whatever the merges make of it (ignore_merges)
  bool begins = false;  // texts begin with bos, unless add_bos_token says otherwise
};
// Built into ByteLevel.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
// Patterns from openai/gpt-2 (src/encoder.py), meta-llama/llama3 (llama/tokenizer.py) and QwenLM/Qwen
// (tokenization_qwen.py), as their tokenizer.json writes them; the others as llama.cpp has them (src/llama-vocab.cpp).
// "default": what it does where the file has no name.
constexpr WordPattern kWords[] = {
    {"gpt-2", {kGpt2}},
    {"llama-bpe",
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
     true,
     true},
    {"qwen2",
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"smollm", {R"(\p{N})", kGpt2}},
    {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
    {kDefaultWords, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
};
// Other names of llama.cpp for the same.
constexpr std::pair<std::string_view, std::string_view> kSame[] = {{"llama3", "llama-bpe"},
                                                                   {"llama-v3", "llama-bpe"},
                                                                   {"falcon3", "llama-bpe"},
                                                                   {"pixtral", "llama-bpe"},
                                                                   {"deepseek-r1-qwen", "qwen2"},
                                                                   {"stablelm2", "qwen2"},
                                                                   {"hunyuan", "qwen2"},
                                                                   {"solar-open", "qwen2"},
                                                                   {"megrez", "qwen2"},
                                                                   {"phi-2", "gpt-2"},
                                                                   {"mpt", "gpt-2"},
                                                                   {"olmo", "gpt-2"},
                                                                   {"jais", "gpt-2"},
                                                                   {"roberta-bpe", "gpt-2"},
                                                                   {"starcoder", "smollm"},
                                                                   {"refact", "smollm"},
                                                                   {"command-r", "smollm"},
                                                                   {"codeshell", "smollm"},
                                                                   {"exaone", "smollm"},
                                                                   {"minerva-7b", "smollm"}};

const WordPattern* find_words(std::string_view name) {
  for (const auto& [other, same] : kSame)
    if (name == other) name = same;
  const auto* const found =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const WordPattern& words) { return words.name == name; });
  return found == std::end(kWords) ? nullptr : found;
}

size_t count_of(const WordPattern& words) {
  return static_cast<size_t>(std::find(words.patterns.begin(), words.patterns.end(), nullptr) - words.patterns.begin());
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
  std::vector<std::string> patterns;
  for (const Json* const step : steps) {
    const std::string type = step->value("type", "");
    if (type == "Digits" && step->value("individual_digits", false)) {
      patterns.emplace_back(R"(\p{N})");
    } else if (type == "Split") {
      if (!step->at("pattern").contains("Regex") || step->value("behavior", "") != "Isolated") return "";
      patterns.push_back(step->at("pattern").at("Regex").text());
    } else if (step != &last) {
      return "";
    }
  }
  if (last.value("use_regex", true)) patterns.emplace_back(kGpt2);
  for (const WordPattern& words : kWords) {
    const size_t n = count_of(words);
    if (words.name != kDefaultWords && n == patterns.size() &&
        std::equal(patterns.begin(), patterns.end(), words.patterns.begin()))
      return std::string(words.name);
  }
  return "";
}

Json words_of_name(std::string_view name) {
  const WordPattern* const found = find_words(name);
  if (found == nullptr) return nullptr;
  size_t n = count_of(*found);
  const bool own = found->patterns[n - 1] == kGpt2;
  if (own) --n;
  Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}};
  if (n == 0) return bytes;
  Json steps = Json::array();
  for (size_t i = 0; i < n; ++i) steps.push_back(split_of(found->patterns[i]));
  steps.push_back(std::move(bytes));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

std::string known_words() {
  std::string out;
  const auto add = [&](std::string_view name) { out += (out.empty() ? "" : ", ") + std::string(name); };
  for (const WordPattern& words : kWords) add(words.name);
  for (const auto& [other, same] : kSame) add(other);
  return out;
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
