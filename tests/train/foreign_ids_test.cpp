// Which ids begin and end a text: said by up to four files of a Hugging Face folder, and written to exports.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "interop/gguf_keys.h"
#include "interop/hugging_face.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Ids = std::vector<int32_t>;

Json parsed(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(std::string{std::istreambuf_iterator<char>(in), {}});
}
Json token(int id, const char* text) { return {{"id", id}, {"content", text}, {"special", true}}; }
Json special(const char* text) { return {{"SpecialToken", {{"id", text}, {"type_id", 0}}}}; }

// A template of <s> (3), </t> (4) and <|endoftext|> (2) around a text.
Json around(const Json& before, const Json& after = Json::array()) {
  Json parts = before, known = Json::object();
  parts.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const Json& part : after) parts.push_back(part);
  known["<s>"] = {{"id", "<s>"}, {"ids", Json::array({3})}};
  known["</t>"] = {{"id", "</t>"}, {"ids", Json::array({4})}};
  known["<|endoftext|>"] = {{"id", "<|endoftext|>"}, {"ids", Json::array({2})}};
  return {{"type", "TemplateProcessing"}, {"single", parts}, {"special_tokens", known}};
}

// The golden llama of 41 ids with a tokenizer of 5.
struct Folder {
  TempDir temp;
  std::string path = temp.file("model");
  Json tokenizer{{"added_tokens", Json::array({token(2, "<|endoftext|>"), token(3, "<s>"), token(4, "</t>")})},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                 {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", Json::array()}}}};
  Folder() {
    std::filesystem::copy(source_path("tests/golden/hugging_face/llama"), path);
    set("rope_parameters", nullptr);  // scaled as llama3's, which GGUF files do not say
  }
  void write(const std::string& file, const Json& json) const { std::ofstream(path + "/" + file) << json.dump(); }
  void set(const std::string& key, const Json& value) const {
    Json config = parsed(path + "/config.json");
    config[key] = value;
    write("config.json", config);
  }
  void put(const Json& processor) {
    tokenizer["post_processor"] = processor;
    write("tokenizer.json", tokenizer);
  }
  ImportedModel imported() const { return import_hugging_face(path); }
  std::string refused() const {
    return error_of([&] { imported(); });
  }
  // What a prompt of the id 0 becomes.
  Ids prompt() const {
    Ids ids{0};
    add_begin(parse_origin(to_text(imported().origin), "origin"), ids);
    return ids;
  }
  bool noted(const std::string& text) const {
    const std::vector<std::string> notes = imported().notes;
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) { return contains(note, text); });
  }
  // The value of a key tokenizer.ggml.*; -1: none.
  int64_t gguf(const std::string& key, int64_t vocabulary = 41) const {
    const ImportedModel model = imported();
    for (const auto& [name, value] : interop::vocabulary_keys(model.tokenizer.get(), vocabulary, model.origin))
      if (name == "tokenizer.ggml." + key) return std::get<GgufValue::Integers>(value.data()).at(0);
    return -1;
  }
  std::string facts() const {
    const ImportedModel model = imported();
    save_imported(model, temp.file("m.safetensors"));
    const auto learner = load_evaluator(temp.file("m.safetensors"), find_loss("softmax_cross_entropy"));
    const CheckpointHeader header = read_checkpoint_header(temp.file("m.safetensors"));
    std::string text;
    for (const auto& [name, fact] : export_gguf(learner->model(), read_model_record(temp.file("m.safetensors"))->model,
                                                model.tokenizer.get(), temp.file("m.gguf"), {.origin = header.origin})
                                        .facts)
      text += name + ": " + fact + '\n';
    return text;
  }
};

}  // namespace

TEST_CASE("Texts begin with the ids of the template of tokenizer.json, then the named token, then the config's") {
  Folder folder;
  folder.write("tokenizer_config.json", {{"bos_token", "<s>"}, {"tokenizer_class", "PreTrainedTokenizerFast"}});
  folder.put(around(Json::array({special("<s>")})));
  CHECK(folder.prompt() == Ids{3, 0});
  folder.set("bos_token_id", 9);
  CHECK(folder.prompt() == Ids{3, 0});
  CHECK(folder.noted("bos_token has id 3, bos_token_id of the model says 9: the former is taken"));
  CHECK(folder.gguf("bos_token_id") == 3);
  CHECK(folder.gguf("add_bos_token") == 1);
  folder.write("tokenizer_config.json", Json::object());
  CHECK(folder.prompt() == Ids{3, 0});
  CHECK(folder.noted("post_processor puts 3 before texts, bos_token_id is 9: the former is put there"));
  folder.put({{"type", "RobertaProcessing"}, {"cls", Json::array({"<s>", 3})}, {"sep", Json::array({"</t>", 4})}});
  CHECK(folder.prompt() == Ids{3, 0});
  CHECK(folder.noted("post_processor puts 4 after texts: skipped"));
  // Two: a sequence of processors adds around what the first one made.
  const Json bytes{{"type", "ByteLevel"}}, inner = around(Json::array({special("<|endoftext|>")}));
  folder.put(
      {{"type", "Sequence"}, {"processors", Json::array({bytes, inner, around(Json::array({special("<s>")}))})}});
  CHECK(folder.prompt() == Ids{3, 2, 0});
  CHECK(contains(folder.facts(), "texts begin with the ids 3, 2; GGUF holds one: llama.cpp puts 3 alone"));
  // add_bos_token against the template.
  folder.write("tokenizer_config.json", {{"add_bos_token", false}, {"tokenizer_class", "PreTrainedTokenizerFast"}});
  CHECK(folder.prompt() == Ids{3, 2, 0});
  CHECK(folder.noted("add_bos_token is false, tokenizer.json puts ids before texts: the latter counts"));
  folder.write("tokenizer_config.json", {{"add_bos_token", false}, {"tokenizer_class", "LlamaTokenizer"}});
  CHECK(folder.prompt() == Ids{3, 2, 0});
  folder.write("tokenizer_config.json", {{"add_bos_token", true}, {"bos_token", {{"content", "<s>"}}}});
  folder.put(nullptr);
  CHECK(folder.prompt() == Ids{0});
  CHECK(folder.noted("add_bos_token is true, tokenizer.json puts none before texts: the latter counts"));
}

TEST_CASE("A token that is half a character is named as the tokenizer.json names it") {
  Folder folder;
  folder.tokenizer["model"]["vocab"]["\u00c4"] = 5;  // the byte 0xC4
  folder.put(nullptr);
  folder.set("eos_token_id", 5);
  const ImportedModel model = folder.imported();
  REQUIRE(model.tokenizer->bytes(5) == "\xc4");
  std::filesystem::create_directory(folder.temp.file("out"));
  interop::write_origin(folder.temp.file("out"), model.origin, model.tokenizer.get());
  CHECK(parsed(folder.temp.file("out/tokenizer_config.json")).at("eos_token").text() == "\u00c4");
}

TEST_CASE("A folder without weights that are read names those that it has") {
  Folder folder;
  std::filesystem::rename(folder.path + "/model.safetensors", folder.path + "/pytorch_model.bin");
  const std::string error = folder.refused();
  INFO(error);
  CHECK(contains(error,
                 "has neither model.safetensors nor its index.json, but pytorch_model.bin. Checkpoints of PyTorch"));
  CHECK(contains(error, "safetensors.torch.save_file(torch.load('FILE', weights_only=True)"));
}

TEST_CASE("Texts end with the ids of the model, or the token that tokenizer_config.json names, and no invented one") {
  Folder folder;
  folder.put(nullptr);
  CHECK(folder.noted("no file says which id ends a text: taken 2, '<|endoftext|>', by its name"));
  folder.write("generation_config.json", {{"eos_token_id", Json::array()}});
  folder.write("tokenizer_config.json", {{"eos_token", "</t>"}});
  CHECK(folder.imported().origin.end == Ids{4});
  folder.write("tokenizer_config.json", {{"eos_token", {{"content", "</t>"}, {"lstrip", false}}}});
  CHECK(folder.imported().origin.end == Ids{4});
  CHECK(folder.gguf("eos_token_id") == 4);
  CHECK(folder.gguf("bos_token_id") == -1);
  folder.set("eos_token_id", 1);
  CHECK(folder.imported().origin.end == Ids{1});
  CHECK(folder.noted("eos_token has id 4, eos_token_id of the model says 1: the latter ends texts"));
  folder.write("generation_config.json", {{"eos_token_id", Json::array({4, 1, 3, 1, 2})}});
  CHECK(contains(folder.facts(), "GGUF holds 3 of the 4 ids that end a text; not written: 2"));
  const auto wrong = [&](const Json& id) {
    folder.write("generation_config.json", {{"eos_token_id", id}});
    return folder.refused();
  };
  const std::string where = "/generation_config.json': eos_token_id: got ";
  // As the 50256 of GPT-2 in a config with a small vocabulary: no row, so it cannot occur.
  CHECK(wrong(Json::array({4, 90000})).empty());
  CHECK(folder.noted(where + "90000, which is not an id of the model: skipped"));
  CHECK(folder.imported().origin.end == Ids{4});
  folder.set("bos_token_id", 50256);
  CHECK(folder.noted("/config.json': bos_token_id: got 50256, which is not an id of the model: skipped"));
  folder.set("bos_token_id", nullptr);
  CHECK(contains(wrong("4"), where + "\"4\", expected an id"));
  CHECK(contains(wrong(1.5), where + "1.5, expected an id from 0 to 40 (vocab_size)."));
  CHECK(wrong(-1).empty());
  folder.write("generation_config.json", {{"pad_token_id", -1}});
  CHECK(folder.noted("pad_token_id: got -1, which is not an id of the model: skipped"));
  // No end at all.
  folder.set("eos_token_id", nullptr);
  folder.write("tokenizer_config.json", {{"eos_token", "<gone>"}});
  folder.tokenizer["added_tokens"] = Json::array({token(2, "<x>")});
  folder.put(nullptr);
  CHECK(folder.noted("eos_token '<gone>' is not a token of tokenizer.json"));
  CHECK(folder.gguf("eos_token_id", 3) == -1);
  CHECK(folder.gguf("bos_token_id", 3) == -1);
}

TEST_CASE("A dropout of 0 is none, and advice that the import follows is not given") {
  Folder folder;
  folder.tokenizer["model"]["dropout"] = 0.0;
  folder.put(nullptr);
  CHECK(folder.imported().tokenizer != nullptr);
  folder.tokenizer["model"]["dropout"] = 0.1;
  folder.put(nullptr);
  CHECK(folder.noted("model.dropout: got 0.1"));
  folder.tokenizer["model"].erase("dropout");
  folder.tokenizer["model"]["byte_fallback"] = true;
  folder.put(nullptr);
  CHECK(folder.noted("Take the tokenizer.model"));
  std::filesystem::copy(source_path("tests/golden/tokenizers/pieces_bpe.model"), folder.path + "/tokenizer.model");
  CHECK(folder.noted("byte_fallback: got true."));
  CHECK_FALSE(folder.noted("Take the tokenizer.model"));
}

TEST_CASE("The template of chats goes through model files, GGUF and folders unchanged") {
  Folder folder;
  const std::string text = "{% for m in messages %}\n{{ m['content'] | trim }}\u00e9{% endfor %}",
                    other = "{{ bos_token }}";
  const auto in_gguf = [&](const ModelOrigin& origin, const Tokenizer& tokenizer) {
    std::string found;
    for (const auto& [name, value] : interop::vocabulary_keys(&tokenizer, 41, origin))
      if (name == "tokenizer.chat_template") found = std::get<GgufValue::Texts>(value.data()).at(0);
    return found;
  };
  folder.write("tokenizer_config.json", {{"chat_template", text}, {"tokenizer_class", "PreTrainedTokenizerFast"}});
  folder.put(Json(nullptr));
  ImportedModel model = folder.imported();
  CHECK(in_gguf(parse_origin(to_text(model.origin), "origin"), *model.tokenizer) == text);
  // Of several the default one; a file of its own counts first.
  folder.write("tokenizer_config.json",
               {{"chat_template", Json::array({Json{{"name", "tool_use"}, {"template", "x"}},
                                               Json{{"name", "default"}, {"template", other}}})}});
  model = folder.imported();
  CHECK(in_gguf(model.origin, *model.tokenizer) == other);
  std::ofstream(folder.path + "/chat_template.jinja") << text;
  model = folder.imported();
  CHECK(in_gguf(model.origin, *model.tokenizer) == text);
  CHECK(std::find(model.unused.begin(), model.unused.end(), "chat_template.jinja") == model.unused.end());
  // Through GGUF, and from there to a folder, whose configuration names the class again.
  static_cast<void>(folder.facts());
  const ImportedModel read = import_gguf(folder.temp.file("m.gguf"));
  CHECK(read.origin.tokenizer_config == Json{{"chat_template", text}});
  CHECK(std::find(read.unused.begin(), read.unused.end(), "tokenizer.chat_template") == read.unused.end());
  CHECK(std::find(read.read.begin(), read.read.end(), "tokenizer.chat_template") != read.read.end());
  interop::write_origin(folder.temp.path(), read.origin, read.tokenizer.get());
  const Json config = parsed(folder.temp.file("tokenizer_config.json"));
  CHECK(config.at("chat_template") == text);
  CHECK(config.at("tokenizer_class") == "PreTrainedTokenizerFast");
  const auto file_text = [&](const std::string& name) {
    std::ifstream in(folder.temp.file(name), std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  CHECK(file_text("chat_template.jinja") == text);
  // A tokenizer whose files are not written: the template alone, of several the default one.
  ModelOrigin several = read.origin;
  std::filesystem::create_directory(folder.temp.file("other"));
  const auto bytes = make_tokenizer("bytes", "");
  interop::write_origin(folder.temp.file("other"), several, bytes.get());
  CHECK(file_text("other/chat_template.jinja") == text);
  CHECK_FALSE(std::filesystem::exists(folder.temp.file("other/tokenizer_config.json")));
  several.tokenizer_config["chat_template"] =
      Json::array({Json{{"name", "tool_use"}, {"template", "x"}}, Json{{"name", "default"}, {"template", other}}});
  interop::write_origin(folder.temp.file("other"), several, bytes.get());
  CHECK(file_text("other/chat_template.jinja") == other);
  // Those of byte-level BPE stand in tokenizer_config.json, which a file of one would hide.
  std::filesystem::create_directory(folder.temp.file("several"));
  interop::write_origin(folder.temp.file("several"), several, read.tokenizer.get());
  CHECK_FALSE(std::filesystem::exists(folder.temp.file("several/chat_template.jinja")));
  CHECK(parsed(folder.temp.file("several/tokenizer_config.json")).at("chat_template").size() == 2);
  std::ofstream(folder.path + "/chat_template.jinja") << "\xff";
  CHECK(contains(folder.refused(), "chat_template.jinja': got bytes that are not UTF-8"));
}
