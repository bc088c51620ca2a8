#include "interop/gguf_keys.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/tokenizers.h"

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
constexpr std::pair<std::string_view, std::string_view> kSame[] = {
    {"llama-bpe", "llama3 llama-v3 falcon3 pixtral"},
    {"qwen2", "deepseek-r1-qwen stablelm2 hunyuan solar-open megrez"},
    {"gpt-2", "phi-2 mpt olmo jais roberta-bpe"},
    {"smollm", "starcoder refact command-r codeshell exaone minerva-7b"}};

const WordPattern* find_words(std::string_view name) {
  for (const auto& [same, others] : kSame)
    if (has_word(others, name)) name = same;
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
  std::string out = joined(kWords, " ", &WordPattern::name);
  for (const auto& [same, others] : kSame) out += concat(' ', others);
  for (size_t at = 0; (at = out.find(' ', at)) != std::string::npos; at += 2) out.replace(at, 1, ", ");
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

namespace {

enum TokenType : int64_t {
  kNormal = 1,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5
};  // values of llama.cpp's llama_token_type

constexpr std::string_view kMerges = "gpt2", kLongestMatch = "rwkv";  // values of tokenizer.ggml.model

struct GgufVocabulary {
  std::string_view model = kMerges;
  GgufValue::Texts tokens = {}, merges = {};
  GgufValue::Integers types = {};
  std::string words = "gpt-2";
};

// A token of tokenizer model rwkv: printable ASCII unchanged, other bytes as \xNN.
std::string escaped(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      if (c == '\\') out += '\\';
      out += c;
    } else {
      out += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  return out;
}

// For tokens that are bytes or characters: the next token is the longest that matches, and there is no end token.
GgufVocabulary of_characters(const Tokenizer& tokenizer) {
  GgufVocabulary out;
  out.model = kLongestMatch;
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    out.tokens.push_back(escaped(tokenizer.bytes(id)));
    out.types.push_back(kNormal);
  }
  return out;
}

// Whether ignore_merges changes no word: texts of tokens have the same ids with and without it.
bool merges_reach_words(const Tokenizer& tokenizer) {
  Json file = tokenizer.content();
  file.at("model")["ignore_merges"] = !file.at("model").value("ignore_merges", false);
  const auto other = data::load_bpe_tokenizer(file);
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (bytes.size() > 1 && encode(tokenizer, bytes) != encode(*other, bytes)) return false;
  }
  return true;
}

GgufVocabulary of_bpe(const Tokenizer& tokenizer) {
  const Json file = tokenizer.content();
  GgufVocabulary out;
  out.words = words_name(file);
  require(!out.words.empty(), "export",
          "the tokenizer cuts texts into words in a way that llama.cpp has no name for: "
          "known are those of GPT-2, Llama 3 and Qwen 2.");
  const Json& model = file.at("model");
  require(model.value("ignore_merges", false) == whole_words_of_name(out.words) || merges_reach_words(tokenizer),
          "export", "the tokenizer has ignore_merges: ", model.value("ignore_merges", false) ? "true" : "false",
          " and words of ", out.words, ", for which llama.cpp does the opposite: it would give other ids.");
  const auto all = static_cast<size_t>(tokenizer.vocabulary());
  out.tokens.resize(all);
  out.types.assign(all, kUnused);
  for (const auto& [token, id] : file.at("model").at("vocab").members()) {
    out.tokens.at(id.get<size_t>()) = token;
    out.types.at(id.get<size_t>()) = kNormal;
  }
  if (file.contains("added_tokens") && !file.at("added_tokens").is_null())
    for (const Json& added : file.at("added_tokens")) {
      const std::string& text = added.at("content").text();
      const auto same = std::find(out.tokens.begin(), out.tokens.end(), text);
      const size_t id =
          same != out.tokens.end() ? static_cast<size_t>(same - out.tokens.begin()) : added.at("id").get<size_t>();
      out.tokens.at(id) = text;
      out.types.at(id) = added.value("special", false) ? kControl : kUserDefined;
    }
  for (const Json& merge : file.at("model").at("merges"))
    out.merges.push_back(merge.is_string() ? merge.text() : merge.at(0).text() + ' ' + merge.at(1).text());
  return out;
}

void fill(GgufVocabulary& v, int64_t vocabulary) {
  const bool merges = v.model == kMerges;
  // The longest match considers unused tokens too, so they begin with a byte that no text contains (0xFF is not in
  // UTF-8).
  const std::string_view begin = merges ? "" : "\\xff";
  for (size_t id = 0; id < v.tokens.size(); ++id)
    if (v.tokens[id].empty()) v.tokens[id] = concat(begin, "<|unused_", id, "|>");
  while (std::ssize(v.tokens) < vocabulary) {
    v.tokens.push_back(concat(begin, "<|unused_", v.tokens.size(), "|>"));
    v.types.push_back(kUnused);
  }
  // llama.cpp rejects a file of model gpt2 without merges, so add one of that byte, which GPT-2 writes as U+00FF.
  if (merges && v.merges.empty()) v.merges.push_back("\xc3\xbf \xc3\xbf");
}

// Converts the vocabulary of another program's file to a tokenizer.json.
Json tokenizer_file(const GgufFile& file, const std::string& name, const Json& words) {
  const GgufValue::Texts& tokens = file.texts("tokenizer.ggml.tokens");
  const GgufValue* const types = file.find("tokenizer.ggml.token_type");
  const auto* const numbers = types == nullptr ? nullptr : std::get_if<GgufValue::Integers>(&types->data());
  if (types != nullptr && (numbers == nullptr || numbers->size() != tokens.size()))
    fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': key 'tokenizer.ggml.token_type': got ", types->describe(),
              ", expected ", tokens.size(), " numbers, one for each token.");
  // Lists and a set: a lookup by name in an object of JSON reads all of it.
  Json::Object vocab;
  std::unordered_set<std::string_view> known;
  Json added = Json::array(), merges = Json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int64_t type = numbers == nullptr ? int64_t{kNormal} : (*numbers)[id];
    if (type == kUnused) continue;
    if (type == kControl || type == kUserDefined)
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type == kControl}});
    else if (known.insert(tokens[id]).second)
      vocab.emplace_back(tokens[id], id);
    else
      fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': key 'tokenizer.ggml.tokens': token ", id, " is '",
                printable(tokens[id]), "', which another id has, too.");
  }
  for (const std::string& merge : file.texts("tokenizer.ggml.merges")) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos) continue;
    const std::string_view left = std::string_view(merge).substr(0, space),
                           right = std::string_view(merge).substr(space + 1);
    if (known.count(left) > 0 && known.count(right) > 0 && known.count(concat(left, right)) > 0)
      merges.push_back(merge);
  }
  Json vocabulary = Json::object();
  const_cast<Json::Object&>(vocabulary.members()) = std::move(vocab);
  const bool whole = whole_words_of_name(name);
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", words},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", whole},
            {"vocab", std::move(vocabulary)},
            {"merges", merges}}}};
}

// Turns errors about a key, which may come from any program, into Error(kData).
template <typename Use>
std::shared_ptr<const Tokenizer> reading(const GgufFile& file, std::string_view key, Use use) {
  try {
    return use();
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': key '", key, "': ", e.what());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kData && e.code() != ErrorCode::kUsage) throw;
    fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': key '", key, "': ", e.what());
  }
}

constexpr const char* kChatTemplate = "tokenizer.chat_template";

}  // namespace

GgufMetadata vocabulary_keys(const Tokenizer* tokenizer, int64_t vocabulary, const ModelOrigin& origin) {
  if (tokenizer == nullptr) return {{"tokenizer.ggml.model", GgufValue::text("no_vocab")}};  // without texts
  require(tokenizer->vocabulary() <= vocabulary, "export", describe(*tokenizer), ": the model has ", vocabulary,
          " ids, expected at least ", tokenizer->vocabulary(), '.');
  const std::string_view kind = tokenizer->kind();
  require(kind == "chars" || kind == "bytes" || kind == "bpe", "export", "tokenizer: got ", kind,
          ", expected chars, bytes or bpe: others are not written to GGUF.");
  GgufVocabulary v = kind == "bpe" ? of_bpe(*tokenizer) : of_characters(*tokenizer);
  const bool merges = v.model == kMerges;
  fill(v, vocabulary);
  GgufMetadata out;
  out.emplace_back("tokenizer.ggml.model", GgufValue::text(std::string(v.model)));
  if (merges) out.emplace_back("tokenizer.ggml.pre", GgufValue::text(v.words));
  out.emplace_back("tokenizer.ggml.tokens", GgufValue::texts(std::move(v.tokens)));
  out.emplace_back("tokenizer.ggml.token_type", GgufValue::int32s(std::move(v.types)));
  if (merges) {
    out.emplace_back("tokenizer.ggml.merges", GgufValue::texts(std::move(v.merges)));
    for (auto& key : id_keys(*tokenizer, vocabulary, origin)) out.push_back(std::move(key));
  }
  if (const std::string text = chat_template_of(origin); !text.empty())
    out.emplace_back(kChatTemplate, GgufValue::text(text));
  out.emplace_back(kTokenizerKey, GgufValue::text(tokenizer_record(*tokenizer).dump()));
  return out;
}

std::shared_ptr<const Tokenizer> vocabulary_of(const GgufFile& file, int64_t vocabulary,
                                               std::vector<std::string>& notes) {
  const auto fitting = [&](std::shared_ptr<const Tokenizer> made) {
    if (made->vocabulary() > vocabulary)
      fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': ", describe(*made), ": expected at most ", vocabulary,
                ", the rows of token_embd.weight.");
    return made;
  };
  if (file.find(kTokenizerKey) != nullptr)
    return fitting(reading(file, kTokenizerKey, [&] { return load_tokenizer(Json::parse(file.text(kTokenizerKey))); }));
  if (file.find("tokenizer.ggml.model") == nullptr) {
    notes.push_back("the file has no tokenizer");
    return nullptr;
  }
  const std::string& model = file.text("tokenizer.ggml.model");
  const bool named = file.find("tokenizer.ggml.pre") != nullptr;
  const std::string words = named ? file.text("tokenizer.ggml.pre") : std::string(kDefaultWords);
  const Json known = words_of_name(words);
  if (model != "gpt2" || known.is_null()) {
    notes.push_back(concat("the tokenizer is not read: tokenizer.ggml.model ", model, ", pre ", words,
                           "; known is model gpt2 with pre ", known_words()));
    return nullptr;
  }
  if (!named)
    notes.push_back(
        "no key tokenizer.ggml.pre: texts are cut into words as llama.cpp cuts them without it ('default'), which may "
        "differ from how the model was trained");
  return fitting(reading(file, "tokenizer.ggml.tokens",
                         [&] { return data::load_bpe_tokenizer(tokenizer_file(file, words, known)); }));
}

ModelOrigin origin_of_keys(const GgufFile& file, int64_t vocabulary) {
  ModelOrigin origin;
  const auto id = [&](const char* name) -> int32_t {
    const std::string key = concat("tokenizer.ggml.", name);
    if (file.find(key) == nullptr) return -1;
    const int64_t n = file.integer(key);
    if (n == UINT32_MAX || n == -1) return -1;  // none, as some programs write it
    if (n < 0 || n >= vocabulary)
      fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': key '", key, "': got ", n, ", expected an id below ",
                vocabulary, ", the rows of token_embd.weight.");
    return static_cast<int32_t>(n);
  };
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const int32_t end = id(name);
        end >= 0 && std::find(origin.end.begin(), origin.end.end(), end) == origin.end.end())
      origin.end.push_back(end);
  origin.begin = id("bos_token_id");
  origin.pad = id("padding_token_id");
  if (file.find(kChatTemplate) != nullptr) origin.tokenizer_config = {{"chat_template", file.text(kChatTemplate)}};
  const std::string pre = file.find("tokenizer.ggml.pre") ? file.text("tokenizer.ggml.pre") : "";
  const bool told = file.find("tokenizer.ggml.add_bos_token") != nullptr;
  origin.add_begin = told ? file.boolean("tokenizer.ggml.add_bos_token") : begins_of_name(pre);
  const size_t slash = file.path().rfind('/');
  origin.name = file.path().substr(slash == std::string::npos ? 0 : slash + 1);
  return origin;
}

}  // namespace bitgrad::interop
