#include "train/interop/gguf_vocabulary.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/tokenizers.h"
#include "train/interop/gguf_keys.h"
#include "train/interop/gguf_words.h"

namespace bitgrad::interop {
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

GgufVocabulary of_bpe(const Tokenizer& tokenizer) {
  const Json file = tokenizer.content();
  GgufVocabulary out;
  out.words = words_name(file);
  require(!out.words.empty(), "export",
          "the tokenizer cuts texts into words in a way that llama.cpp has no name for: "
          "known are those of GPT-2, Llama 3 and Qwen 2.");
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

GgufMetadata without_texts() { return {{"tokenizer.ggml.model", GgufValue::text("no_vocab")}}; }

// Converts the vocabulary of another program's file to a tokenizer.json.
Json tokenizer_file(const GgufFile& file, const Json& words) {
  const GgufValue::Texts& tokens = file.texts("tokenizer.ggml.tokens");
  const GgufValue* const types = file.find("tokenizer.ggml.token_type");
  const auto* const numbers = types == nullptr ? nullptr : std::get_if<GgufValue::Integers>(&types->data());
  if (types != nullptr && (numbers == nullptr || numbers->size() != tokens.size()))
    fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': key 'tokenizer.ggml.token_type': got ", types->describe(),
              ", expected ", tokens.size(), " numbers, one for each token.");
  Json vocab = Json::object(), added = Json::array(), merges = Json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int64_t type = numbers == nullptr ? int64_t{kNormal} : (*numbers)[id];
    if (type == kUnused) continue;
    if (type == kControl || type == kUserDefined)
      added.push_back({{"id", id}, {"content", tokens[id]}, {"special", type == kControl}, {"normalized", false}});
    else
      vocab[tokens[id]] = id;
  }
  for (const std::string& merge : file.texts("tokenizer.ggml.merges")) {
    const size_t space = merge.find(' ', 1);
    const bool known = space != std::string::npos && vocab.contains(merge.substr(0, space)) &&
                       vocab.contains(merge.substr(space + 1)) &&
                       vocab.contains(merge.substr(0, space) + merge.substr(space + 1));
    if (known) merges.push_back(merge);
  }
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", words},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
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

}  // namespace

GgufMetadata vocabulary_keys(const Tokenizer* tokenizer, int64_t vocabulary) {
  if (tokenizer == nullptr) return without_texts();
  require(tokenizer->vocabulary() <= vocabulary, "export", describe(*tokenizer), ": the model has ", vocabulary,
          " ids, expected at least ", tokenizer->vocabulary(), '.');
  const std::string_view kind = tokenizer->kind();
  require(kind == "chars" || kind == "bytes" || kind == "bpe", "export", "tokenizer: got ", kind,
          ", expected chars, bytes or bpe: others are not written to GGUF.");
  GgufVocabulary v = kind == "bpe" ? of_bpe(*tokenizer) : of_characters(*tokenizer);
  const auto own = std::ssize(v.tokens);
  const bool merges = v.model == kMerges;
  fill(v, vocabulary);
  GgufMetadata out;
  out.emplace_back("tokenizer.ggml.model", GgufValue::text(std::string(v.model)));
  if (merges) out.emplace_back("tokenizer.ggml.pre", GgufValue::text(v.words));
  out.emplace_back("tokenizer.ggml.tokens", GgufValue::texts(std::move(v.tokens)));
  out.emplace_back("tokenizer.ggml.token_type", GgufValue::int32s(std::move(v.types)));
  if (merges) {
    const int64_t end = tokenizer->end_id() >= 0 ? tokenizer->end_id() : own < vocabulary ? own : 0;
    out.emplace_back("tokenizer.ggml.merges", GgufValue::texts(std::move(v.merges)));
    out.emplace_back("tokenizer.ggml.bos_token_id", GgufValue::uint32(end));
    out.emplace_back("tokenizer.ggml.eos_token_id", GgufValue::uint32(end));
    out.emplace_back("tokenizer.ggml.add_bos_token", GgufValue::boolean(false));
  }
  out.emplace_back(kTokenizerKey, GgufValue::text(tokenizer_record(*tokenizer).dump()));
  return out;
}

std::shared_ptr<const Tokenizer> vocabulary_of(const GgufFile& file, int64_t vocabulary, std::string& note) {
  const auto fitting = [&](std::shared_ptr<const Tokenizer> made) {
    if (made->vocabulary() > vocabulary)
      fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': ", describe(*made), ": expected at most ", vocabulary,
                ", the rows of token_embd.weight.");
    return made;
  };
  if (file.find(kTokenizerKey) != nullptr)
    return fitting(reading(file, kTokenizerKey, [&] { return load_tokenizer(Json::parse(file.text(kTokenizerKey))); }));
  if (file.find("tokenizer.ggml.model") == nullptr) {
    note = "the file has no tokenizer";
    return nullptr;
  }
  const std::string& model = file.text("tokenizer.ggml.model");
  const std::string words = file.find("tokenizer.ggml.pre") ? file.text("tokenizer.ggml.pre") : "gpt-2";
  const Json known = words_of_name(words);
  if (model != "gpt2" || known.is_null()) {
    note = concat("the tokenizer is not read: tokenizer.ggml.model ", model, ", pre ", words,
                  "; known are model gpt2 with pre gpt-2, llama-bpe and qwen2");
    return nullptr;
  }
  return fitting(
      reading(file, "tokenizer.ggml.tokens", [&] { return data::load_bpe_tokenizer(tokenizer_file(file, known)); }));
}

}  // namespace bitgrad::interop
