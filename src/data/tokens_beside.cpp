// The files of Hugging Face beside a model of SentencePiece that add tokens to it.
#include <map>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "data/tokenizers.h"

namespace bitgrad::data {
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
