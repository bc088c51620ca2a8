// SentencePiece models (Kudo and Richardson 2018, arXiv:1808.06226), by its library. sentencepiece_train.cpp trains
// them.

#include <map>
#include <set>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "data/base64.h"
#include "data/tokenizer_text.h"
#include "data/tokenizers.h"

#if BITGRAD_WITH_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace bitgrad::data {

#if BITGRAD_WITH_SENTENCEPIECE
namespace {

constexpr std::string_view kSentencePiece = "sentencepiece";
constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, which represents a space

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, Json added) : model_(std::move(model)), list_(std::move(added)) {
    if (const auto status = processor_.LoadFromSerializedProto(model_); !status.ok())
      fail_with(ErrorCode::kData, kSentencePiece, "is not a SentencePiece model: ", status.message());
    for (int id = 0; id < processor_.GetPieceSize(); ++id) bytes_.push_back(bytes_of(id));
    if (bytes_.empty()) fail_with(ErrorCode::kData, kSentencePiece, "the model has no pieces.");
    special_.resize(bytes_.size());
    for (int id = 0; id < processor_.GetPieceSize(); ++id) special_[static_cast<size_t>(id)] = processor_.IsControl(id);
    if (!list_.is_null())
      for (const Json& token : list_) add(token);
    for (int id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id) && !named_.contains(id)) names_.add({id, processor_.IdToPiece(id)});
  }

  std::string_view kind() const override { return kSentencePiece; }
  int64_t vocabulary() const override { return std::ssize(bytes_); }
  bool special(int32_t id) const override { return special_[static_cast<size_t>(id)]; }
  int32_t end_id() const override { return processor_.eos_id(); }
  Json content() const override {
    Json content{{"model", base64(model_)}};
    if (!list_.is_null()) content["added"] = list_;
    return content;
  }
  std::string_view bytes(int32_t id) const override {
    require(id >= 0 && id < vocabulary(), kSentencePiece, "id: got ", id, ", expected 0 .. ", vocabulary() - 1);
    return bytes_[static_cast<size_t>(id)];
  }
  // Tokens that were added to the model are cut out first; the library reads what is between them, each part with the
  // space that it puts before a text.
  void encode(std::string_view text, const Sink& sink) const override {
    added_.split(text, [&](std::string_view part, int32_t id) {
      if (id >= 0) return sink({&id, 1});
      encode_part(part, sink);
    });
  }
  void encode_plain(std::string_view text, const Sink& sink) const override {
    const auto taken = [&](int32_t id) { return !special(id); };
    added_.split_those(text, taken, [&](std::string_view part, int32_t id) {
      if (id >= 0) return sink({&id, 1});
      encode_part(part, sink);
    });
  }
  // The added tokens and the model's control pieces, such as <s>.
  void split_special(std::string_view text, const Part& f) const override { names_.split(text, f); }
  // As the library does: removes the space that it adds before a text.
  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) bytes(id);
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string part;
      if (const auto status = processor_.Decode(run, &part); !status.ok())
        fail_with(ErrorCode::kData, kSentencePiece, status.message());
      text += part;
      run.clear();
    };
    for (const int32_t id : ids) {
      if (id < processor_.GetPieceSize()) {
        run.push_back(id);
        continue;
      }
      flush();
      text += bytes_[static_cast<size_t>(id)];
    }
    flush();
    return text;
  }

 private:
  // {"id", "content", "special", "lstrip", "rstrip"}: a piece of the model with this text, or an id behind them.
  void add(const Json& item) {
    constexpr int64_t kMostGap = 65536;
    AddedToken token;
    token.text = item.at("content").text();
    const auto id = item.at("id").get<int64_t>();
    const int64_t pieces = processor_.GetPieceSize();
    if (token.text.empty() || id < 0 || id >= pieces + kMostGap)
      fail_with(ErrorCode::kData, kSentencePiece, "added token '", token.text, "': got id ", id, ", expected 0 .. ",
                pieces + kMostGap - 1);
    if (id < pieces && processor_.IdToPiece(static_cast<int>(id)) != token.text)
      fail_with(ErrorCode::kData, kSentencePiece, "added token '", token.text, "': id ", id, " is that of the piece '",
                processor_.IdToPiece(static_cast<int>(id)), '\'');
    token.id = static_cast<int32_t>(id);
    token.left_strip = item.value("lstrip", false);
    token.right_strip = item.value("rstrip", false);
    const auto at = static_cast<size_t>(id);
    if (at >= bytes_.size()) bytes_.resize(at + 1), special_.resize(at + 1);
    if (id >= pieces) {
      bytes_[at] = token.text;
      special_[at] = item.value("special", false);
    }
    named_.insert(token.id);
    names_.add(token);
    added_.add(std::move(token));
  }
  void encode_part(std::string_view part, const Sink& sink) const {
    std::vector<int> ids;
    if (const auto status = processor_.Encode({part.data(), part.size()}, &ids); !status.ok())
      fail_with(ErrorCode::kData, kSentencePiece, status.message());
    if (!ids.empty()) sink(ids);
  }
  std::string bytes_of(int id) const {
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsControl(id)) return "";
    if (processor_.IsUnknown(id)) return " \xe2\x81\x87 ";  // same as the library's decoding
    if (processor_.IsByte(id)) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};  // <0x0A>
    std::string bytes;
    for (size_t at = 0; at < piece.size();) {
      const bool space = std::string_view(piece).substr(at).starts_with(kSpace);
      bytes += space ? ' ' : piece[at];
      at += space ? kSpace.size() : 1;
    }
    return bytes;
  }

  std::string model_;
  Json list_;                  // added tokens; null: none
  AddedTokens added_, names_;  // names_: with the control pieces
  std::set<int32_t> named_;    // ids of added tokens
  std::vector<bool> special_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> bytes_;
};

}  // namespace

TokenizerPointer make_sentencepiece_tokenizer(std::string model, Json added) {
  return std::make_shared<SentencePieceTokenizer>(std::move(model), std::move(added));
}

#else

TokenizerPointer make_sentencepiece_tokenizer(std::string, Json) {
  fail("tokenizer",
       "this program was built without SentencePiece. Install libsentencepiece-dev (scripts/setup.sh) and build it "
       "again.");
}

#endif

TokenizerPointer load_sentencepiece_tokenizer(const Json& content) {
  return make_sentencepiece_tokenizer(base64_bytes(content.at("model").text()),
                                      content.contains("added") ? content.at("added") : Json(nullptr));
}
TokenizerPointer open_sentencepiece_tokenizer(std::string_view bytes) {
  return make_sentencepiece_tokenizer(std::string(bytes), nullptr);
}

// The files of Hugging Face beside a model of SentencePiece that add tokens to it.

namespace {

constexpr int64_t kMostBesideBytes = int64_t{1} << 28, kMostTokens = 65536;

Json read_beside(const std::string& path) {
  if (!file_system().exists(path)) return nullptr;
  const std::vector<uint8_t> bytes = read_file(path, kMostBesideBytes);
  try {
    return Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {.depth = 32});
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "tokenizer", path, ": ", e.what());
  }
}

class Tokens {
 public:
  // Later files say more: they replace what earlier ones say of an id.
  void add(int64_t id, const Json& token) {
    const bool text = token.is_string();
    const std::string& content = text ? token.text() : token.at("content").text();
    const auto flag = [&](const char* key, bool otherwise) { return text ? otherwise : token.value(key, otherwise); };
    by_id_[id] = {{"id", id},
                  {"content", content},
                  {"lstrip", flag("lstrip", false)},
                  {"rstrip", flag("rstrip", false)},
                  {"special", flag("special", text)}};
    if (std::ssize(by_id_) > kMostTokens)
      fail_with(ErrorCode::kData, "tokenizer", "got more than ", kMostTokens, " added tokens.");
  }
  Json list() const {
    if (by_id_.empty()) return nullptr;
    Json all = Json::array();
    for (const auto& [id, token] : by_id_) all.push_back(token);
    return all;
  }

 private:
  std::map<int64_t, Json> by_id_;
};

int64_t number(const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
    throw JsonError("added_tokens_decoder: got '" + text.substr(0, 80) + "', expected an id");
  return std::stoll(text);
}

}  // namespace

Json tokens_beside(const std::string& folder) {
  Tokens tokens;
  const Json listed = read_beside(folder + "/added_tokens.json"), file = read_beside(folder + "/tokenizer.json"),
             config = read_beside(folder + "/tokenizer_config.json");
  try {
    if (listed.is_object())
      for (const auto& [text, id] : listed.members()) tokens.add(id.get<int64_t>(), Json(text));
    if (file.is_object() && file.contains("added_tokens") && file.at("added_tokens").is_array())
      for (const Json& token : file.at("added_tokens")) tokens.add(token.at("id").get<int64_t>(), token);
    if (config.is_object() && config.contains("added_tokens_decoder") && config.at("added_tokens_decoder").is_object())
      for (const auto& [id, token] : config.at("added_tokens_decoder").members()) tokens.add(number(id), token);
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "tokenizer", folder, ": added tokens: ", e.what());
  }
  return tokens.list();
}

std::string pieces_as_transformers(std::string model, const std::string& folder) {
  // NormalizerSpec (field 3 of ModelProto) once more, of which the last values count: name "identity", an empty
  // precompiled_charsmap, remove_extra_whitespaces false.
  constexpr std::string_view kIdentity{"\x1a\x0e\x0a\x08identity\x12\x00\x20\x00", 16};
  const Json config = read_beside(folder + "/tokenizer_config.json");
  const bool named =
      config.is_object() && config.contains("tokenizer_class") && config.at("tokenizer_class").is_string();
  if (named && config.at("tokenizer_class").text().find("Llama") != std::string::npos) model += kIdentity;
  return model;
}

}  // namespace bitgrad::data
