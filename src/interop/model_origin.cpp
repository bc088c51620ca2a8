#include "bitgrad/interop/model_origin.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "io/metadata.h"

namespace bitgrad {
namespace {

constexpr const char* kOriginKey = "bitgrad.origin";
constexpr int64_t kMostTokenId = int64_t{1} << 24;

int32_t id_at(const Json& record, const char* key) {
  return static_cast<int32_t>(detail::whole_member(record, key, -1, kMostTokenId));
}

std::vector<int32_t> ids_at(const Json& record, const char* key) {
  std::vector<int32_t> ids;
  for (const Json& id : record.at(key))
    ids.push_back(static_cast<int32_t>(detail::whole_number(id, key, 0, kMostTokenId)));
  return ids;
}

}  // namespace

std::string to_text(const ModelOrigin& o) {
  const std::string text = Json{
      {"name", o.name},
      {"context", o.context},
      {"end", o.end},
      {"begin", o.begin},
      {"pad", o.pad},
      {"add_begin", o.add_begin},
      {"first", o.first},
      {"generation", o.generation},
      {"tokenizer_config",
       o.tokenizer_config}}.dump();
  parse_origin(text, "origin");  // throws if the text exceeds the reader's limits
  return text;
}

ModelOrigin parse_origin(const std::string& text, const std::string& where) {
  ModelOrigin o;
  if (text.empty()) return o;
  try {
    const Json record = detail::parse_metadata(kOriginKey, text, 24);
    o.name = record.at("name").text();
    o.context = detail::whole_member(record, "context", 0, int64_t{1} << 31);
    o.end = ids_at(record, "end");
    if (record.contains("first")) o.first = ids_at(record, "first");
    o.begin = id_at(record, "begin");
    o.pad = id_at(record, "pad");
    o.add_begin = record.at("add_begin").get<bool>();
    o.generation = record.at("generation");
    o.tokenizer_config = record.at("tokenizer_config");
    return o;
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "checkpoint", where, ": ", kOriginKey, ": ", e.what());
  }
}

std::vector<int32_t> end_ids(const ModelOrigin& origin, const Tokenizer* tokenizer) {
  if (!origin.end.empty() || tokenizer == nullptr || tokenizer->end_id() < 0) return origin.end;
  return {tokenizer->end_id()};
}

std::vector<int32_t> first_ids(const ModelOrigin& origin) {
  if (!origin.add_begin) return {};
  if (!origin.first.empty()) return origin.first;
  return origin.begin >= 0 ? std::vector<int32_t>{origin.begin} : std::vector<int32_t>{};
}

std::string chat_template_of(const ModelOrigin& origin) {
  const Json& config = origin.tokenizer_config;
  if (!config.is_object() || !config.contains("chat_template")) return "";
  const Json& given = config.at("chat_template");
  if (given.is_string()) return given.text();
  if (!given.is_array()) return "";
  for (const Json& one : given)
    if (one.is_object() && one.contains("name") && one.at("name") == "default" && one.contains("template") &&
        one.at("template").is_string())
      return one.at("template").text();
  return "";
}

void add_begin(const ModelOrigin& origin, std::vector<int32_t>& ids) {
  const std::vector<int32_t> first = first_ids(origin);
  if (ids.size() < first.size() || !std::equal(first.begin(), first.end(), ids.begin()))
    ids.insert(ids.begin(), first.begin(), first.end());
}

std::vector<int32_t> prompt_ids(const ModelOrigin& origin, const Tokenizer& tokenizer, const std::string& text,
                                std::string_view where) {
  std::vector<int32_t> ids;
  try {
    ids = encode(tokenizer, text);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kData) throw;
    fail_with(ErrorCode::kData, "generate", where, ": ", e.what());
  }
  add_begin(origin, ids);
  // A document begins after the end token of another one.
  if (ids.empty() && tokenizer.end_id() >= 0) ids = {tokenizer.end_id()};
  require(!ids.empty(), "generate", where, ": got an empty text, and ", describe(tokenizer),
          " has no mark of an end of text to begin with. Give a text of at least one character");
  return ids;
}

}  // namespace bitgrad
