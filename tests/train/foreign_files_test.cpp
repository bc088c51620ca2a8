// What files of other programs say beside the weights: read, listed as not used, or refused.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/io/safetensors.h"
#include "interop/gguf_keys.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;
namespace fs = std::filesystem;

namespace {

const std::string kLlama = source_path("tests/golden/hugging_face/llama");

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}
bool listed(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
double factor_of(const ImportedModel& model) { return find_decoder(model.spec).decoder.rope.factor; }

// The golden llama, as a folder that may be changed and as a GGUF file.
struct Llama {
  TempDir temp;
  std::string folder = temp.file("model"), gguf = temp.file("m.gguf"), changed = temp.file("changed.gguf");
  std::unique_ptr<Learner> learner;
  Llama() {
    fs::copy(kLlama, folder);
    set("rope_scaling", nullptr);  // llama3's, which GGUF files do not say
    set("rope_parameters", nullptr);
    save_imported(import_hugging_face(folder), temp.file("m.safetensors"));
    learner = load_evaluator(temp.file("m.safetensors"), find_loss("softmax_cross_entropy"));
  }
  ModelSpec spec() const { return read_model_record(temp.file("m.safetensors"))->model; }
  void set(const std::string& key, const Json& value) const {
    Json config = Json::parse(text_of(folder + "/config.json"));
    config[key] = value;
    write("config.json", config);
  }
  void write(const std::string& file, const Json& json) const { std::ofstream(folder + "/" + file) << json.dump(); }
  ImportedModel imported() const { return import_hugging_face(folder); }
  std::string refused() const {
    return error_of([&] { imported(); });
  }
  // Its GGUF with further keys.
  ImportedModel with(const GgufMetadata& more) const {
    export_gguf(learner->model(), spec(), nullptr, gguf);
    const GgufFile file = GgufFile::read(gguf);
    std::vector<GgufItem> items;
    for (const GgufEntry& e : file.entries()) items.push_back({e.name, e.type, e.shape, file.data(e.name)});
    GgufMetadata keys = file.metadata();
    keys.insert(keys.end(), more.begin(), more.end());
    write_gguf(changed, items, keys);
    return import_gguf(changed);
  }
  std::string refused(const GgufMetadata& more) const {
    CHECK(error_code_of([&] { with(more); }) == 3);
    return error_of([&] { with(more); });
  }
  // Its tensors again, with other names.
  template <typename F>
  void rename(F&& change) const {
    const std::string path = folder + "/model.safetensors";
    const SafetensorsFile file = SafetensorsFile::read(path);
    std::vector<SafetensorsItem> items;
    for (const SafetensorsEntry& e : file.entries())
      for (const std::string& name : std::vector<std::string>(change(e.name)))
        items.push_back({name, e.dtype, e.shape, file.data(e.name), e.bytes});
    write_safetensors(path, items, {});
  }
};

std::vector<double> logits(const ImportedModel& model) {
  TempDir temp;
  save_imported(model, temp.file("x"));
  return load_evaluator(temp.file("x"), find_loss("softmax_cross_entropy"))
      ->predict(ids_tensor({1, 2, 3, 4, 5, 6, 7, 8}))
      .elements();
}

}  // namespace

TEST_CASE("Scaled rotary positions are read or refused, however they are spelled") {
  const Llama llama;
  const GgufValue four = GgufValue::float32(4), none = GgufValue::text("none"), linear = GgufValue::text("linear");
  const ImportedModel scaled = llama.with({{"llama.rope.scaling.factor", four}});
  CHECK(factor_of(scaled) == 4);
  CHECK(factor_of(llama.with({{"llama.rope.scale_linear", four}})) == 4);
  CHECK(factor_of(llama.with({{"llama.rope.scaling.type", linear}, {"llama.rope.scaling.factor", four}})) == 4);
  CHECK(factor_of(llama.with({{"llama.rope.scaling.type", none}, {"llama.rope.scaling.factor", four}})) == 1);
  CHECK(factor_of(llama.with({{"llama.rope.scaling.factor", GgufValue::float32(0)}})) == 1);
  CHECK(contains(llama.refused({{"llama.rope.scaling.type", GgufValue::text("yarn")}}),
                 "key 'llama.rope.scaling.type': got yarn, expected none or linear."));
  const std::vector<double> right = logits(scaled);
  CHECK(right != logits(llama.with({})));
  for (const char* type : {"type", "rope_type"}) {
    Json scaling{{"factor", 4.0}};
    scaling[type] = "linear";
    llama.set("rope_scaling", scaling);
    CHECK(logits(llama.imported()) == right);
  }
  llama.set("rope_scaling", {{"factor", 4.0}});
  CHECK(contains(llama.refused(), "rope_scaling: got a factor and no rope_type, expected both"));
  llama.set("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}});
  CHECK(contains(llama.refused(), "rope_type: got 'dynamic', expected default, linear or llama3."));
  llama.set("rope_scaling", {{"rope_type", "longrope"}, {"short_factor", Json::array({1.5})}});
  CHECK(contains(llama.refused(), "rope_scaling.rope_type: got 'longrope', expected"));
  llama.set("rope_scaling", {{"rope_type", "linear"}, {"factor", "2.0"}});
  CHECK(contains(llama.refused(), "factor: got \"2.0\", expected a number."));
  llama.set("rope_scaling", Json::array({1}));
  CHECK(contains(llama.refused(), "rope_scaling: got [1], expected an object."));
  llama.set("rope_scaling", nullptr);
  llama.set("rope_parameters", {{"rope_theta", 10000}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}});
  CHECK(contains(llama.refused(), "rope_parameters.partial_rotary_factor: got 0.5, which is not supported."));
}

TEST_CASE("Keys that change what the model computes are refused, others are listed") {
  const Llama llama;
  const std::string window = "llama.attention.sliding_window", experts = "llama.expert_count";
  CHECK(contains(llama.refused({{window, GgufValue::uint32(4096)}}), window + ": 4096"));
  const ImportedModel read = llama.with({{experts, GgufValue::uint32(0)}, {"general.url", GgufValue::text("u")}});
  CHECK(listed(read.unused, experts));
  CHECK(listed(read.unused, "general.url"));
  CHECK(listed(read.read, "llama.block_count"));
  llama.set("final_logit_softcapping", 30.0);
  CHECK(contains(llama.refused(), "final_logit_softcapping: 30"));
  llama.set("final_logit_softcapping", nullptr);
  llama.set("layer_types", Json::array({"full_attention", "sliding_attention"}));
  CHECK(contains(llama.refused(), "layer_types: got \"sliding_attention\", expected full_attention."));
  llama.set("layer_types", Json::array({"full_attention", "full_attention"}));
  CHECK(listed(llama.imported().read, "config.json: layer_types"));
  CHECK(listed(llama.imported().unused, "config.json: final_logit_softcapping"));
}

TEST_CASE("The ids that begin and end a text are the model's, and exports write them") {
  const Llama llama;
  llama.set("eos_token_id", 7);
  CHECK(llama.imported().origin.end == std::vector<int32_t>{7});
  llama.write("generation_config.json", {{"eos_token_id", Json::array({9, 3})}, {"bos_token_id", 5}, {"top_k", 4}});
  llama.write("tokenizer_config.json", {{"add_bos_token", true}, {"bos_token", "<s>"}});
  const ImportedModel model = llama.imported();
  CHECK(model.origin.end == std::vector<int32_t>{9, 3});
  CHECK(model.origin.add_begin);
  std::vector<int32_t> ids{1, 2};
  add_begin(model.origin, ids);
  add_begin(model.origin, ids);
  CHECK(ids == std::vector<int32_t>{5, 1, 2});
  // A model file keeps them, and a folder gets them back.
  save_imported(model, llama.temp.file("kept"));
  const std::string origin = read_checkpoint_header(llama.temp.file("kept")).origin;
  ModelSpec spec = llama.spec();
  export_hugging_face(llama.learner->model(), spec, nullptr, llama.temp.file("out"), {.origin = origin});
  const Json generation = Json::parse(text_of(llama.temp.file("out/generation_config.json")));
  CHECK(generation.at("eos_token_id") == Json::array({9, 3}));
  CHECK(generation.at("top_k") == 4);
  const Json config = Json::parse(text_of(llama.temp.file("out/config.json")));
  CHECK(config.at("eos_token_id") == Json::array({9, 3}));
  CHECK(config.at("bos_token_id") == 5);
  CHECK(contains(error_of([] { parse_origin(R"({"name": 3})", "m.safetensors"); }), "m.safetensors: bitgrad.origin"));
  const ImportedModel gguf = llama.with({{"tokenizer.ggml.eos_token_id", GgufValue::uint32(6)},
                                         {"tokenizer.ggml.eot_token_id", GgufValue::uint32(8)},
                                         {"tokenizer.ggml.add_bos_token", GgufValue::boolean(true)}});
  CHECK(gguf.origin.end == std::vector<int32_t>{6, 8});
  CHECK(contains(llama.refused({{"tokenizer.ggml.eos_token_id", GgufValue::uint32(900000)}}), "got 900000, expected"));
}

TEST_CASE("Folders are read as transformers reads them: model.safetensors first, base models, heads saved twice") {
  const Llama llama;
  const std::vector<double> right = logits(llama.imported());
  std::ofstream(llama.folder + "/model.safetensors.index.json") << R"({"weight_map": {"a": "gone.safetensors"}})";
  const ImportedModel stale = llama.imported();
  CHECK(logits(stale) == right);
  CHECK(std::any_of(stale.notes.begin(), stale.notes.end(),
                    [](const std::string& note) { return contains(note, "the index of shards beside it is not"); }));
  llama.rename([](const std::string& name) -> std::vector<std::string> {
    return {name.starts_with("model.") ? name.substr(6) : name};
  });
  CHECK(logits(llama.imported()) == right);
  // tie_word_embeddings with a head: a copy is noted, another one is an error.
  llama.set("tie_word_embeddings", true);
  CHECK(contains(llama.refused(), "lm_head.weight: differs from the embedding"));
  llama.rename([](const std::string& name) -> std::vector<std::string> {
    if (name == "lm_head.weight") return {};
    return name == "embed_tokens.weight" ? std::vector<std::string>{name, "lm_head.weight"} : std::vector{name};
  });
  CHECK(llama.refused().empty());
}

TEST_CASE("A folder of adapters names its base model") {
  TempDir temp;
  std::ofstream(temp.file("adapter_config.json")) << "{}";
  CHECK(
      contains(error_of([&] { import_hugging_face(temp.path()); }), "has adapters of PEFT and no model. Import their"));
}

TEST_CASE("A GGUF model in several files is read from any of them, and a missing one is named") {
  const Llama llama;
  const ImportedModel whole = llama.with({});
  const GgufFile file = GgufFile::read(llama.changed);
  std::vector<GgufItem> items[2];
  for (const GgufEntry& e : file.entries())
    items[e.name.starts_with("blk.1.") ? 1 : 0].push_back({e.name, e.type, e.shape, file.data(e.name)});
  const auto name = [&](int n) { return llama.temp.file(concat("s-0000", n, "-of-00002.gguf")); };
  for (int part = 0; part < 2; ++part) {
    GgufMetadata keys = part == 0 ? file.metadata() : GgufMetadata{};
    keys.emplace_back("split.no", GgufValue::uint32(part));
    keys.emplace_back("split.count", GgufValue::uint32(2));
    write_gguf(name(part + 1), items[part], keys);
  }
  CHECK(logits(import_gguf(name(1))) == logits(whole));
  CHECK(logits(import_gguf(name(2))) == logits(whole));
  fs::rename(name(2), llama.temp.file("other.gguf"));
  CHECK(contains(error_of([&] { import_gguf(name(1)); }), "it is file 1 of the 2 files of a model, and '"));
  CHECK(contains(error_of([&] { import_gguf(llama.temp.file("other.gguf")); }),
                 "it is file 2 of the 2 files of a model, expected a name that ends in '-00002-of-00002.gguf'"));
}

TEST_CASE("llama.cpp's names of words are found in a tokenizer.json that cuts so, and the way back") {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "smollm", "falcon"})
    CHECK(interop::words_name(Json{{"pre_tokenizer", interop::words_of_name(name)}}) == name);
  CHECK(interop::words_of_name("starcoder") == interop::words_of_name("smollm"));
  CHECK(interop::words_of_name("stablelm2") == interop::words_of_name("qwen2"));
  CHECK(interop::words_of_name("default").at("pretokenizers").size() == 5);
  CHECK(interop::words_of_name("deepseek-v3").is_null());
  CHECK(contains(interop::known_words(), "gpt-2, llama-bpe, qwen2, smollm"));
  // As SmolLM's own file says it.
  const Json digits = Json::parse(
      R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel",
          "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]})");
  CHECK(interop::words_name(Json{{"pre_tokenizer", digits}}) == "smollm");
  for (const char* other :
       {R"({"type": "Digits", "individual_digits": false})",
        R"({"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Removed", "invert": false})",
        R"({"type": "Whitespace"})"}) {
    Json file = digits;
    file["pretokenizers"].items()[0] = Json::parse(other);
    CHECK(interop::words_name(Json{{"pre_tokenizer", file}}).empty());
  }
}

TEST_CASE("llama.cpp's names of words say more than the pattern") {
  TempDir temp;
  const auto opened = [&](GgufMetadata keys, std::vector<std::string>& notes) {
    std::erase_if(keys, [](const auto& key) { return key.first == "bitgrad.tokenizer"; });
    write_gguf(temp.file("t.gguf"), {}, keys);
    return interop::vocabulary_of(GgufFile::read(temp.file("t.gguf")), 100000, notes);
  };
  std::shared_ptr<const Tokenizer> llama3;
  try {
    llama3 = open_tokenizer(source_path("tests/golden/tokenizers/llama3.json"));
  } catch (const Error& e) {
    WARN(e.what());
    return;
  }
  GgufMetadata keys{{"tokenizer.ggml.model", GgufValue::text("gpt2")}};
  GgufValue::Texts tokens;
  const Json content = llama3->content();
  for (const auto& [token, id] : content.at("model").at("vocab").members())
    if (llama3->bytes(id.get<int32_t>()).size() == 1) tokens.push_back(token);
  REQUIRE(tokens.size() == 256);
  tokens.insert(tokens.end(), {"ab", "abc"});
  keys.emplace_back("tokenizer.ggml.tokens", GgufValue::texts(tokens));
  keys.emplace_back("tokenizer.ggml.merges", GgufValue::texts({"a b"}));
  std::vector<std::string> notes;
  const auto without = opened(keys, notes);
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], "no key tokenizer.ggml.pre"));
  // As llama.cpp without a name: three digits are a word, and sign and word are apart.
  CHECK(encode(*without, "abc").size() == 2);
  keys.emplace_back("tokenizer.ggml.pre", GgufValue::text("llama-bpe"));
  const auto named = opened(keys, notes);
  CHECK(encode(*named, "abc").size() == 1);
  CHECK(encode(*named, "abd").size() == 2);
  const Json file = named->content();
  for (const char* key : {"decoder", "post_processor", "truncation"}) CHECK(file.contains(key));
  CHECK(file.at("decoder").at("type") == "ByteLevel");
  // The way back: the name is written only where it says the same.
  CHECK(interop::vocabulary_keys(named.get(), 300, {}).size() > 5);
  Json other = file;
  other.at("model")["ignore_merges"] = false;
  std::ofstream(temp.file("o.json")) << other.dump();
  const auto changed = open_tokenizer(temp.file("o.json"));
  CHECK(contains(error_of([&] { interop::vocabulary_keys(changed.get(), 300, {}); }), "has ignore_merges: false"));
}
