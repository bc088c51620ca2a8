#include "train/interop/origin_files.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad::interop {
namespace {

constexpr int64_t kMostOriginBytes = int64_t{1} << 28, kMostOriginId = int64_t{1} << 24;

// null if the folder has no such file.
Json read_origin_json(const std::string& folder, const char* name) {
  const std::string path = folder + '/' + name;
  if (!file_system().exists(path)) return nullptr;
  const std::vector<uint8_t> bytes = read_file(path, kMostOriginBytes);
  try {
    Json file = Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {.depth = 32});
    if (!file.is_object()) throw JsonError("got no object");
    return file;
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "import", "'", path, "': ", e.what());
  }
}

bool has(const Json& file, std::string_view key) { return file.contains(key) && !file.at(key).is_null(); }

int32_t id_of(const Json& value, const char* key) {
  const auto id = value.is_integer() ? value.get<int64_t>() : -1;
  if (id < 0 || id > kMostOriginId)
    fail_with(ErrorCode::kData, "import", key, ": got ", value.dump().substr(0, 80), ", expected an id.");
  return static_cast<int32_t>(id);
}
// An id or a list of ids, from the first file that has the key.
std::vector<int32_t> ids_of(std::initializer_list<const Json*> files, const char* key) {
  for (const Json* file : files) {
    if (!has(*file, key)) continue;
    const Json& value = file->at(key);
    std::vector<int32_t> ids;
    if (value.is_array())
      for (const Json& id : value) ids.push_back(id_of(id, key));
    else
      ids.push_back(id_of(value, key));
    return ids;
  }
  return {};
}
int32_t only_id(std::initializer_list<const Json*> files, const char* key) {
  const std::vector<int32_t> ids = ids_of(files, key);
  return ids.empty() ? -1 : ids[0];
}

// A token is text, or an object with its text.
std::string text_of(const Json& file, const char* key) {
  if (!has(file, key)) return "";
  const Json& token = file.at(key);
  if (token.is_object() && token.contains("content")) return token.at("content").text();
  return token.is_string() ? token.text() : "";
}

// Whether the post_processor of a tokenizer.json puts the token `begin` before a text.
bool template_begins(const Json& processor, const std::string& begin) {
  if (!processor.is_object()) return false;
  if (has(processor, "processors")) {
    const Json& all = processor.at("processors");
    return std::any_of(all.begin(), all.end(), [&](const Json& p) { return template_begins(p, begin); });
  }
  if (processor.value("type", "") != "TemplateProcessing" || !has(processor, "single")) return false;
  const Json& single = processor.at("single");
  return single.size() > 0 && single.at(size_t{0}).contains("SpecialToken") &&
         single.at(size_t{0}).at("SpecialToken").at("id") == begin;
}

}  // namespace

ModelOrigin origin_of_folder(const std::string& folder) {
  ModelOrigin o;
  const Json config = read_origin_json(folder, "config.json");
  o.generation = read_origin_json(folder, "generation_config.json");
  o.tokenizer_config = read_origin_json(folder, "tokenizer_config.json");
  try {
    o.end = ids_of({&o.generation, &config}, "eos_token_id");
    o.begin = only_id({&o.generation, &config}, "bos_token_id");
    o.pad = only_id({&o.generation, &config}, "pad_token_id");
    for (const char* key : {"max_position_embeddings", "n_positions"})
      if (has(config, key) && o.context == 0) o.context = config.at(key).get<int64_t>();
    const std::string begin = text_of(o.tokenizer_config, "bos_token");
    if (has(o.tokenizer_config, "add_bos_token")) {
      o.add_begin = o.tokenizer_config.at("add_bos_token").get<bool>();
    } else if (!begin.empty()) {
      const Json tokenizer = read_origin_json(folder, "tokenizer.json");
      o.add_begin = has(tokenizer, "post_processor") && template_begins(tokenizer.at("post_processor"), begin);
    }
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "import", "'", folder, "': ", e.what());
  }
  std::string path = folder;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  o.name = has(config, "_name_or_path") && config.at("_name_or_path").is_string() &&
                   !config.at("_name_or_path").text().empty()
               ? config.at("_name_or_path").text()
               : path;
  return o;
}

void write_origin(const std::string& folder, const ModelOrigin& origin, const Tokenizer* tokenizer) {
  const std::vector<int32_t> ends = end_ids(origin, tokenizer);
  const auto token_text = [&](int32_t id) { return std::string(tokenizer->bytes(id)); };
  Json generation = origin.generation.is_null() ? Json::object() : origin.generation;
  if (!ends.empty()) generation["eos_token_id"] = ends.size() == 1 ? Json(ends[0]) : Json(ends);
  if (origin.begin >= 0) generation["bos_token_id"] = origin.begin;
  if (origin.pad >= 0) generation["pad_token_id"] = origin.pad;
  write_file_atomically(folder + "/generation_config.json", generation.dump(2) + "\n");
  if (tokenizer == nullptr || tokenizer->kind() != "bpe") return;
  Json config = origin.tokenizer_config;
  if (config.is_null()) {
    config = Json::object();
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    config["clean_up_tokenization_spaces"] = false;
    if (origin.add_begin && origin.begin >= 0) config["add_bos_token"] = true;
    const auto name = [&](const char* key, int32_t id) {
      if (id >= 0 && id < tokenizer->vocabulary() && !token_text(id).empty()) config[key] = token_text(id);
    };
    name("eos_token", ends.empty() ? -1 : ends[0]);
    name("bos_token", origin.begin);
    name("pad_token", origin.pad);
  }
  write_file_atomically(folder + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace bitgrad::interop
