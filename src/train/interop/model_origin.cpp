#include "bitgrad/train/model_origin.h"

#include "bitgrad/base/error.h"
#include "io/metadata.h"

namespace bitgrad {
namespace {

constexpr const char* kOriginKey = "bitgrad.origin";
constexpr int64_t kMostTokenId = int64_t{1} << 24;

int32_t id_at(const Json& record, const char* key) {
  return static_cast<int32_t>(detail::whole_member(record, key, -1, kMostTokenId));
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
    for (const Json& id : record.at("end"))
      o.end.push_back(static_cast<int32_t>(detail::whole_number(id, "end", 0, kMostTokenId)));
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

void add_begin(const ModelOrigin& origin, std::vector<int32_t>& ids) {
  if (origin.add_begin && origin.begin >= 0 && (ids.empty() || ids[0] != origin.begin))
    ids.insert(ids.begin(), origin.begin);
}

}  // namespace bitgrad
