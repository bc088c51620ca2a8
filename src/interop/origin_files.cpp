#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "interop/hugging_face.h"

namespace bitgrad::interop {

namespace {

// Ids that a tokenizer.json puts around texts (post_processor), as the file writes them.
struct TextTemplate {
  std::vector<Json> before = {}, after = {};
};

bool has(const Json& file, std::string_view key) {
  return file.is_object() && file.contains(key) && !file.at(key).is_null();
}

// The template of one text: its parts are "A", which is the text, and names of special_tokens.
TextTemplate of_parts(const Json& processor) {
  TextTemplate out;
  bool text = false;
  for (const Json& part : processor.at("single")) {
    if (part.contains("Sequence")) {
      text = true;
      continue;
    }
    const std::string& name = part.at("SpecialToken").at("id").text();
    for (const Json& id : processor.at("special_tokens").at(name).at("ids"))
      (text ? out.after : out.before).push_back(id);
  }
  return out;
}

// Each processor of a sequence adds around what those before it made.
void add(const Json& processor, TextTemplate& out) {
  const std::string type = processor.value("type", "");
  TextTemplate own;
  if (type == "Sequence")
    for (const Json& part : processor.at("processors")) add(part, out);
  else if (type == "TemplateProcessing")
    own = of_parts(processor);
  else if (type == "BertProcessing" || type == "RobertaProcessing")
    own = {{processor.at("cls").at(size_t{1})}, {processor.at("sep").at(size_t{1})}};
  out.before.insert(out.before.begin(), own.before.begin(), own.before.end());
  out.after.insert(out.after.end(), own.after.begin(), own.after.end());
}

// Throws JsonError for a damaged post_processor.
TextTemplate text_template(const Json& tokenizer) {
  TextTemplate out;
  if (has(tokenizer, "post_processor")) add(tokenizer.at("post_processor"), out);
  return out;
}

// Null if neither the tokenizer.json nor the tokenizer_config.json has the token.
Json id_of_token(const Json& tokenizer, const Json& tokenizer_config, const std::string& text) {
  if (has(tokenizer, "added_tokens"))
    for (const Json& token : tokenizer.at("added_tokens"))
      if (token.at("content") == Json(text)) return token.at("id");
  if (has(tokenizer, "model") && has(tokenizer.at("model"), "vocab")) {
    const Json& vocab = tokenizer.at("model").at("vocab");
    if (vocab.is_object() && vocab.contains(text)) return vocab.at(text);
    if (vocab.is_array())  // Unigram: pieces with their scores
      for (size_t id = 0; id < vocab.size(); ++id)
        if (vocab.at(id).at(size_t{0}) == Json(text)) return Json(id);
  }
  if (has(tokenizer_config, "added_tokens_decoder"))
    for (const auto& [id, token] : tokenizer_config.at("added_tokens_decoder").members())
      if (has(token, "content") && token.at("content") == Json(text)) return Json::parse(id);
  return nullptr;
}

// The text that names an id in a tokenizer.json: of byte-level BPE, characters stand for bytes. Empty: it has none.
std::string token_of_id(const Json& tokenizer, int32_t id) {
  if (has(tokenizer, "added_tokens"))
    for (const Json& token : tokenizer.at("added_tokens"))
      if (token.at("id") == Json(id)) return token.at("content").text();
  if (has(tokenizer, "model") && has(tokenizer.at("model"), "vocab") && tokenizer.at("model").at("vocab").is_object())
    for (const auto& [token, number] : tokenizer.at("model").at("vocab").members())
      if (number == Json(id)) return token;
  return {};
}

constexpr int64_t kMostOriginBytes = int64_t{1} << 28, kMostOriginId = int64_t{1} << 24;

// null if the folder has no such file.
Json read_origin_json(const std::string& folder, const char* name) {
  const std::string path = folder + '/' + name;
  if (!file_system().exists(path)) return nullptr;
  const std::vector<uint8_t> bytes = read_file(path, kMostOriginBytes);
  try {
    Json file =
        Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {.depth = 32, .values = 6'000'000});
    if (!file.is_object()) throw JsonError("got no object");
    return file;
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "import", "'", path, "': ", e.what());
  }
}

// A token is text, or an object with its text.
std::string text_of(const Json& file, const char* key) {
  if (!has(file, key)) return "";
  const Json& token = file.at(key);
  const Json& text = token.is_object() && token.contains("content") ? token.at("content") : token;
  return text.is_string() ? text.text() : "";
}

bool is_one_of(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

class OriginReader {
 public:
  OriginReader(const std::string& folder, std::vector<std::string>& notes) : folder_(folder), notes_(notes) {
    config_ = read_origin_json(folder, "config.json");
    o_.generation = read_origin_json(folder, "generation_config.json");
    o_.tokenizer_config = read_origin_json(folder, kTokenizerConfig);
    read_chat_template();
    if (has(config_, "vocab_size") && config_.at("vocab_size").is_integer())
      ids_ = std::min(ids_, config_.at("vocab_size").get<int64_t>());
    try {
      tokenizer_ = read_origin_json(folder, kTokenizer);
    } catch (const Error&) {
      tokenizer_ = nullptr;  // damaged: who opens it as a tokenizer says so
    }
  }

  ModelOrigin read() {
    o_.end = numbers("eos_token_id");
    const std::vector<int32_t> begin = numbers("bos_token_id"), pad = numbers(kPad);
    if (!begin.empty()) o_.begin = begin[0];
    if (!pad.empty()) o_.pad = pad[0];
    for (const char* key : {"max_position_embeddings", "n_positions"})
      if (has(config_, key) && o_.context == 0) o_.context = config_.at(key).get<int64_t>();
    named_end();
    named_begin();
    first_ids_of_texts();
    return std::move(o_);
  }
  const Json& config() const { return config_; }

 private:
  // A file of its own counts before the member of tokenizer_config.json.
  void read_chat_template() {
    constexpr int64_t kMostBytes = int64_t{1} << 20;
    const std::string path = folder_ + "/chat_template.jinja";
    if (!file_system().exists(path)) return;
    const std::vector<uint8_t> bytes = read_file(path, kMostBytes);
    const Json text(std::string(bytes.begin(), bytes.end()));
    try {
      static_cast<void>(text.dump());
    } catch (const JsonError&) {
      fail_with(ErrorCode::kData, "import", "'", path, "': got bytes that are not UTF-8, expected a text.");
    }
    o_.tokenizer_config["chat_template"] = text;
  }

  static constexpr const char* kTokenizerConfig = "tokenizer_config.json";
  static constexpr const char* kTokenizer = "tokenizer.json";
  static constexpr const char* kPad = "pad_token_id";

  bool is_id(const Json& value) const {
    return value.is_integer() && value.get<double>() >= 0 && value.get<double>() < static_cast<double>(ids_);
  }

  // An id or a list of ids, from the first file that has some. Ids that the model has no row for cannot occur, as the
  // 50256 of GPT-2 in a config with a small vocabulary, and an id for padding, which nothing here reads, may be
  // anything.
  std::vector<int32_t> numbers(const char* key) {
    const std::pair<const Json*, const char*> files[] = {{&o_.generation, "generation_config.json"},
                                                         {&config_, "config.json"}};
    for (const auto& [file, name] : files) {
      if (!has(*file, key)) continue;
      const Json& value = file->at(key);
      std::vector<int32_t> ids;
      for (const Json& id : value.is_array() ? value.items() : Json::Array{value}) {
        const std::string wrong = concat("'", folder_, '/', name, "': ", key, ": got ", id.dump().substr(0, 80));
        if (!id.is_integer() && std::string_view(key) != kPad)
          fail_with(ErrorCode::kData, "import", wrong, ", expected an id from 0 to ", ids_ - 1, " (vocab_size).");
        if (!is_id(id)) {
          notes_.push_back(wrong + ", which is not an id of the model: skipped");
        } else if (!is_one_of(ids, id.get<int32_t>())) {
          ids.push_back(id.get<int32_t>());
        }
      }
      if (!ids.empty()) return ids;
    }
    return {};
  }

  // The id of the token that tokenizer_config.json names; -1 if it names none, or one that nothing knows.
  int32_t named(const char* key) {
    const std::string text = text_of(o_.tokenizer_config, key);
    if (text.empty()) return -1;
    const Json id = id_of_token(tokenizer_, o_.tokenizer_config, text);
    if (is_id(id)) return id.get<int32_t>();
    if (!tokenizer_.is_null())
      notes_.push_back(concat(kTokenizerConfig, ": ", key, " '", text, "' is not a token of ", kTokenizer,
                              " with an id of the model: skipped"));
    return -1;
  }

  void named_end() {
    const int32_t end = named("eos_token");
    if (end < 0) return;
    if (o_.end.empty())
      o_.end = {end};
    else if (!is_one_of(o_.end, end))
      notes_.push_back(concat(kTokenizerConfig, ": eos_token has id ", end, ", eos_token_id of the model says ",
                              joined(o_.end), ": the latter ends texts"));
  }

  void named_begin() {
    const int32_t begin = named("bos_token");
    if (begin < 0) return;
    if (o_.begin >= 0 && o_.begin != begin)
      notes_.push_back(concat(kTokenizerConfig, ": bos_token has id ", begin, ", bos_token_id of the model says ",
                              o_.begin, ": the former is taken"));
    o_.begin = begin;
  }

  std::vector<int32_t> of_template(const std::vector<Json>& ids) {
    std::vector<int32_t> out;
    for (const Json& id : ids)
      if (is_id(id))
        out.push_back(id.get<int32_t>());
      else
        notes_.push_back(concat(kTokenizer, ": post_processor: got ", id.dump().substr(0, 80),
                                ", which is not an id of the model: skipped"));
    return out;
  }

  // As AutoTokenizer of transformers 5: the template of the tokenizer.json, for any tokenizer_class. add_bos_token
  // counts where there is none of that file.
  void first_ids_of_texts() {
    TextTemplate around;
    try {
      around = text_template(tokenizer_);
    } catch (const JsonError& e) {
      fail_with(ErrorCode::kData, "import", "'", folder_, '/', kTokenizer, "': post_processor: ", e.what());
    }
    o_.first = of_template(around.before);
    o_.add_begin = !o_.first.empty();
    if (const std::vector<int32_t> after = of_template(around.after); !after.empty())
      notes_.push_back(concat(kTokenizer, ": post_processor puts ", joined(after),
                              " after texts: skipped, since a prompt is continued"));
    told();
    if (o_.add_begin && !o_.first.empty() && !is_one_of(o_.first, o_.begin)) {
      if (o_.begin >= 0)
        notes_.push_back(concat(kTokenizer, ": post_processor puts ", joined(o_.first),
                                " before texts, bos_token_id is ", o_.begin, ": the former is put there"));
      o_.begin = o_.first[0];
    }
    if (o_.add_begin && bitgrad::first_ids(o_).empty())
      notes_.push_back(concat(kTokenizerConfig, ": add_bos_token is true, and no file has an id for bos: none is put"));
  }

  void told() {
    if (!has(o_.tokenizer_config, "add_bos_token")) return;
    const Json& value = o_.tokenizer_config.at("add_bos_token");
    if (!value.is_bool())
      fail_with(ErrorCode::kData, "import", "'", folder_, '/', kTokenizerConfig, "': add_bos_token: got ",
                value.dump().substr(0, 80), ", expected true or false.");
    const bool wanted = value.get<bool>(), has_template = o_.add_begin;
    if (wanted == has_template) return;
    if (tokenizer_.is_null()) {
      o_.add_begin = wanted;
      return;
    }
    notes_.push_back(
        concat(kTokenizerConfig, ": add_bos_token is ", wanted ? "true" : "false", ", ", kTokenizer,
               has_template ? " puts ids before texts: " : " puts none before texts: ", "the latter counts"));
  }

  const std::string& folder_;
  std::vector<std::string>& notes_;
  Json config_, tokenizer_;
  int64_t ids_ = kMostOriginId;
  ModelOrigin o_;
};

}  // namespace

ModelOrigin origin_of_folder(const std::string& folder, std::vector<std::string>& notes) {
  try {
    OriginReader reader(folder, notes);
    ModelOrigin o = reader.read();
    std::string path = folder;
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const std::string own = text_of(reader.config(), "_name_or_path");
    o.name = own.empty() ? path : own;
    return o;
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "import", "'", folder, "': ", e.what());
  }
}

void write_origin(const std::string& folder, const ModelOrigin& origin, const Tokenizer* tokenizer) {
  const std::vector<int32_t> ends = end_ids(origin, tokenizer);
  Json generation = origin.generation.is_null() ? Json::object() : origin.generation;
  if (!ends.empty()) generation["eos_token_id"] = ends.size() == 1 ? Json(ends[0]) : Json(ends);
  if (origin.begin >= 0) generation["bos_token_id"] = origin.begin;
  if (origin.pad >= 0) generation["pad_token_id"] = origin.pad;
  write_file_atomically(folder + "/generation_config.json", generation.dump(2) + "\n");
  const bool bpe = tokenizer != nullptr && tokenizer->kind() == "bpe";
  const std::string chats = chat_template_of(origin);
  if (!chats.empty() && (!bpe || origin.tokenizer_config.at("chat_template").is_string()))
    write_file_atomically(folder + "/chat_template.jinja", chats);
  if (!bpe) return;
  const Json file = tokenizer->content();
  const Json& known = origin.tokenizer_config;
  Json config = known;
  // A template alone, which a GGUF file gives, does not name the class.
  if (known.is_null() || (known.size() == 1 && has(known, "chat_template"))) {
    config = Json::object();
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    config["clean_up_tokenization_spaces"] = false;
    if (origin.add_begin && origin.begin >= 0) config["add_bos_token"] = true;
    const auto name = [&](const char* key, int32_t id) {
      const std::string token = token_of_id(file, id);
      if (!token.empty()) config[key] = token;
    };
    name("eos_token", ends.empty() ? -1 : ends[0]);
    name("bos_token", origin.begin);
    name("pad_token", origin.pad);
    if (!known.is_null()) config.update(known);
  }
  write_file_atomically(folder + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace bitgrad::interop
