#include "train/interop/gguf_words.h"

#include <algorithm>
#include <vector>

namespace bitgrad::interop {
namespace {

struct WordPattern {
  std::string_view name;
  const char* pattern;  // nullptr: built into ByteLevel (GPT-2)
};
// Patterns from openai/gpt-2 (src/encoder.py), meta-llama/llama3 (llama/tokenizer.py) and QwenLM/Qwen
// (tokenization_qwen.py), as their tokenizer.json writes them.
constexpr WordPattern kWords[] = {
    {"gpt-2", nullptr},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

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
  const auto* const found =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const WordPattern& words) { return words.name == name; });
  if (found == std::end(kWords)) return nullptr;
  const bool own = found->pattern == nullptr;
  Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}};
  if (own) return bytes;
  const Json split{
      {"type", "Split"}, {"pattern", {{"Regex", found->pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

}  // namespace bitgrad::interop
