// Folders of Hugging Face: logits of the library (scripts/hugging_face_golden.py), the way there and back, training
// from them, files that are wrong.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;
namespace fs = std::filesystem;

namespace {

const std::string kFolder = source_path("tests/golden/hugging_face/");
const std::vector<std::string> kModels{"gpt2",    "gpt2_sharded", "llama",  "bf16",         "qwen2",
                                       "qwen3",   "gemma3",       "gemma2", "granite",      "smollm3",
                                       "mistral", "olmo2",        "bitnet", "bitnet_packed"};

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::unique_ptr<Learner> opened(const std::string& file) {
  return load_evaluator(file, find_loss("softmax_cross_entropy"));
}
Tensor predicted(Learner& learner, const std::vector<int32_t>& ids) { return learner.predict(ids_tensor(ids)); }

std::unique_ptr<Learner> imported(const std::string& folder, const std::string& file) {
  save_imported(import_hugging_face(folder), file);
  return opened(file);
}
ModelSpec spec_of(const std::string& file) { return read_model_record(file)->model; }

// |got - expected| / |expected|.
double distance(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double apart = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    apart += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(apart / norm);
}

// A copy of a folder whose files may be changed.
struct Copy {
  TempDir temp;
  std::string folder = temp.file("model");
  explicit Copy(const std::string& name) { fs::copy(kFolder + name, folder); }
  void set(const std::string& key, const Json& value) const {
    Json config = Json::parse(text_of(folder + "/config.json"));
    config[key] = value;
    write("config.json", config.dump());
  }
  void write(const std::string& file, const std::string& text) const { std::ofstream(folder + "/" + file) << text; }
  std::string refused() const {
    return error_of([&] { import_hugging_face(folder); });
  }
  // Its tensors again, each as `change` makes it; false leaves it out.
  template <typename F>
  void change_tensors(F&& change) const {
    const std::string path = folder + "/model.safetensors";
    const SafetensorsFile file = SafetensorsFile::read(path);
    std::vector<SafetensorsItem> items;
    for (const SafetensorsEntry& e : file.entries()) {
      SafetensorsItem item{e.name, e.dtype, e.shape, file.data(e.name), e.bytes};
      if (change(item)) items.push_back(item);
    }
    write_safetensors(path, items, {});
  }
};

}  // namespace

TEST_CASE("models of Hugging Face have their library's logits") {
  for (const std::string& name : kModels) {
    INFO(name);
    TempDir temp;
    const Json golden = Json::parse(text_of(kFolder + name + "/golden.json"));
    const auto learner = imported(kFolder + name, temp.file("m.safetensors"));
    std::vector<double> expected;
    for (const Json& row : golden["logits"])
      for (const Json& x : row) expected.push_back(x.get<double>());
    const auto ids = golden["ids"].get<std::vector<int32_t>>();
    CHECK(distance(predicted(*learner, ids).elements(), expected) < 1e-5);
  }
}

TEST_CASE("what was imported is exported and imported again bit for bit") {
  for (const std::string& name : kModels) {
    INFO(name);
    TempDir temp;
    const auto first = imported(kFolder + name, temp.file("a"));
    const ExportReport report = export_hugging_face(first->model(), spec_of(temp.file("a")), nullptr, temp.file("out"));
    for (const ExportedTensor& t : report.tensors) {
      INFO(t.name);
      CHECK(t.fate == ExportedTensor::Fate::kExact);
    }
    const auto second = imported(temp.file("out"), temp.file("b"));
    const auto a = first->model().parameters(), b = second->model().parameters();
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      INFO(a[i]->path());
      CHECK(a[i]->spec().dtype() == b[i]->spec().dtype());
      CHECK(a[i]->value().values() == b[i]->value().values());
    }
    const std::vector<int32_t> ids{3, 1, 40, 7, 7, 0, 12};
    CHECK(predicted(*first, ids).elements() == predicted(*second, ids).elements());
    // The packed form and the file of the library are the same bytes.
    if (name == "bitnet_packed") {
      const SafetensorsFile ours = SafetensorsFile::read(temp.file("out") + "/model.safetensors");
      const SafetensorsFile theirs = SafetensorsFile::read(kFolder + name + "/model.safetensors");
      REQUIRE(ours.entries().size() == theirs.entries().size());
      for (const SafetensorsEntry& e : theirs.entries()) {
        INFO(e.name);
        CHECK(ours.entry(e.name).dtype == e.dtype);
        CHECK(std::equal(theirs.data(e.name), theirs.data(e.name) + e.bytes, ours.data(e.name)));
      }
    }
  }
}

TEST_CASE("a dry run of an export writes nothing, and everything that an import misses is listed together") {
  TempDir temp;
  const auto model = imported(kFolder + "llama", temp.file("a"));
  const ExportReport report =
      export_hugging_face(model->model(), spec_of(temp.file("a")), nullptr, temp.file("out"), {.dry_run = true});
  CHECK(report.variant == "llama");
  CHECK(report.tensors.size() == 2 * 9 + 3);
  CHECK_FALSE(fs::exists(temp.file("out")));

  const Copy copy("llama");
  copy.change_tensors([](SafetensorsItem& item) {
    if (item.name == "model.norm.weight") item.name = "model.nrom.weight";
    if (item.name == "model.layers.1.mlp.up_proj.weight") item.shape = {32, 48};
    if (item.name == "model.layers.0.mlp.up_proj.weight") item.dtype = "I32";
    return item.name != "lm_head.weight";
  });
  const std::string text = copy.refused();
  CHECK(contains(text, "model.norm.weight: missing, expected [32]"));
  CHECK(contains(text, "model.nrom.weight: unexpected"));
  CHECK(contains(text, "model.layers.1.mlp.up_proj.weight: got shape [32,48], expected [48,32]"));
  CHECK(contains(text, "model.layers.0.mlp.up_proj.weight: got dtype I32, expected F32"));
  CHECK(contains(text, "lm_head.weight: missing"));
}

TEST_CASE("a config.json that is damaged, forged or of another model is refused") {
  const auto refused = [](const std::string& model, const std::string& key, const Json& value) {
    const Copy copy(model);
    copy.set(key, value);
    return copy.refused();
  };
  CHECK(contains(refused("llama", "model_type", "mamba"),
                 "got 'mamba', expected one of: gpt2, llama, qwen2, qwen3, gemma3_text, gemma2, granite, smollm3, "
                 "mistral, olmo2, bitnet"));
  CHECK(contains(refused("llama", "model_type", 3), "config.json"));
  CHECK(contains(refused("llama", "num_hidden_layers", 60000), "got 60000 blocks in files of"));
  CHECK(contains(refused("llama", "num_hidden_layers", -1), "num_hidden_layers"));
  CHECK(contains(refused("llama", "num_hidden_layers", 3), "model.layers.2.mlp.up_proj.weight: missing"));
  for (const Json& value : {Json(int64_t{1} << 60), Json(1e300), Json(0), Json("many"), Json(nullptr), Json(2.5)})
    for (const char* key : {"hidden_size", "vocab_size", "intermediate_size", "max_position_embeddings"})
      CHECK(contains(refused("llama", key, value), key));
  CHECK(contains(refused("llama", "head_dim", 7), "expected an even number"));
  CHECK(contains(refused("llama", "num_key_value_heads", 3), "expected a divisor"));
  CHECK(contains(refused("llama", "attention_bias", true), "attention_bias: got true"));
  CHECK(contains(refused("llama", "hidden_act", "mish"), "'mish'"));
  CHECK(contains(refused("llama", "rope_parameters", Json::parse(R"({"rope_type": "yarn"})")), "'yarn'"));
  CHECK(contains(refused("llama", "rms_norm_eps", -1.0), "rms_norm_eps"));
  CHECK(contains(refused("llama", "quantization_config", Json::parse(R"({"quant_method": "gptq"})")), "'gptq'"));
  CHECK(contains(refused("gpt2", "scale_attn_by_inverse_layer_idx", true), "expected false"));
  CHECK(contains(refused("qwen2", "use_sliding_window", true), "use_sliding_window"));
  CHECK(contains(refused("qwen3", "use_sliding_window", true), "use_sliding_window"));
  CHECK(contains(refused("qwen3", "attention_bias", true), "attention_bias: got true"));
  // A configuration without head_dim is of heads of 128, whatever hidden_size is.
  CHECK(contains(refused("qwen3", "head_dim", nullptr), "self_attn.q_norm.weight: got shape [16], expected [128]"));
  const Copy copy("gpt2");
  for (const std::string& text :
       std::vector<std::string>{"", "[]", "{", "3", "{\"model_type\": \"gpt2\"}", std::string(200000, '[')}) {
    copy.write("config.json", text);
    CHECK(contains(copy.refused(), "config.json"));
  }
}

// A word where a number, a flag or a list stands; words that only name things; keys that say nothing about the numbers.
TEST_CASE("each key of a config.json is read and refused for a value that it cannot have, or is listed as unused") {
  const std::set<std::string> lax{"architectures", "eos_token_id",       "bos_token_id",
                                  "pad_token_id",  "layer_norm_epsilon", "rope_scaling"};
  for (const std::string name :
       {"llama", "qwen2", "qwen3", "gemma3", "gemma2", "granite", "smollm3", "mistral", "olmo2"}) {
    const Json config = Json::parse(text_of(kFolder + name + "/config.json"));
    for (const auto& [key, value] : config.members()) {
      if (lax.count(key) > 0) continue;
      INFO(name << ": " << key);
      const Copy copy(name);
      copy.set(key, "yarn");
      const std::string error = copy.refused();
      if (!error.empty()) {
        CHECK(contains(error, key));
        continue;
      }
      const std::vector<std::string> unused = import_hugging_face(copy.folder).unused;
      CHECK(std::find(unused.begin(), unused.end(), "config.json: " + key) != unused.end());
    }
  }
  const auto refused = [](const std::string& model, const std::string& key, const std::string& value) {
    const Copy copy(model);
    copy.set(key, Json::parse(value));
    return copy.refused();
  };
  CHECK(contains(refused("gemma3", "layer_types", R"(["sliding_attention"])"), "got 1 types for 3 blocks"));
  CHECK(contains(refused("gemma3", "layer_types", R"(["chunked_attention", "full_attention", "full_attention"])"),
                 "layer_types: got \"chunked_attention\", expected full_attention or sliding_attention."));
  CHECK(contains(refused("qwen3", "layer_types", R"(["sliding_attention", "full_attention"])"),
                 "layer_types: got \"sliding_attention\", expected full_attention."));
  CHECK(contains(refused("gemma3", "sliding_window", "null"), "sliding_window"));
  CHECK(contains(refused("gemma3", "use_bidirectional_attention", "true"), "use_bidirectional_attention: got true"));
  CHECK(contains(refused("gemma3", "rope_parameters", R"({"full_attention": {"rope_type": "yarn"}})"), "'yarn'"));
  CHECK(contains(refused("gemma3", "rope_parameters", R"({"full_attention": {}, "chunked_attention": {"a": 2}})"),
                 "rope_parameters.chunked_attention"));
  CHECK(contains(refused("smollm3", "no_rope_layers", "[1]"), "no_rope_layers: got [1], expected a list"));
  CHECK(contains(refused("smollm3", "no_rope_layers", "[0, 0]"), "one of them 1"));
  CHECK(contains(refused("smollm3", "no_rope_layers", "[2, 1]"), "no_rope_layers"));
  CHECK(
      contains(refused("granite", "tie_word_embeddings", "false"), "logits_scaling: got 3 of a head that is not tied"));
  CHECK(contains(refused("granite", "residual_multiplier", "-1"), "residual_multiplier"));
  CHECK(contains(refused("gemma2", "attn_logit_softcapping", "-1"), "attn_logit_softcapping"));
  CHECK(contains(refused("llama", "attn_logit_softcapping", "50"), "attn_logit_softcapping: 50"));
  CHECK(contains(refused("qwen3", "embedding_multiplier", "12"), "embedding_multiplier: 12"));
}

TEST_CASE("keys of a config.json that transformers does not apply in a family are refused or unused there") {
  const Copy three("gemma3");
  three.set("attn_logit_softcapping", 50);
  CHECK(contains(three.refused(),
                 "attn_logit_softcapping: got 50, expected null: transformers does not apply it in models of gemma3."));
  three.set("attn_logit_softcapping", nullptr);
  three.set("layer_types", nullptr);
  three.set("sliding_window_pattern", 3);
  using K = BlockKind;
  CHECK((find_decoder(import_hugging_face(three.folder).spec).decoder.kinds ==
         std::vector{K::kLocal, K::kLocal, K::kFull}));
  const Copy two("gemma2");  // each second block, whatever the key says
  two.set("layer_types", nullptr);
  two.set("sliding_window_pattern", 1);
  const ImportedModel model = import_hugging_face(two.folder);
  CHECK((find_decoder(model.spec).decoder.kinds == std::vector{K::kLocal, K::kFull}));
  CHECK(std::find(model.unused.begin(), model.unused.end(), "config.json: sliding_window_pattern") !=
        model.unused.end());
  const Copy smollm3("smollm3");
  smollm3.set("no_rope_layer_interval", 1);  // the list counts
  CHECK(smollm3.refused().empty());
  smollm3.set("no_rope_layers", nullptr);
  CHECK(contains(smollm3.refused(), "no_rope_layer_interval: got 1, expected 2 or more"));
}

TEST_CASE("what a config.json of bitnet leaves out is as in transformers") {
  const Copy copy("bitnet");
  copy.set("rope_parameters", nullptr);
  copy.set("rms_norm_eps", nullptr);
  copy.set("hidden_act", nullptr);
  const Decoder d = find_decoder(import_hugging_face(copy.folder).spec).decoder;
  CHECK((d.rope.base == 500000 && d.eps == 1e-5 && d.activation == "relu2_glu"));
}

TEST_CASE("an index that leaves its folder, or contradicts its files, is refused") {
  const Copy copy("gpt2_sharded");
  const std::string file = "model.safetensors.index.json";
  const Json index = Json::parse(text_of(copy.folder + "/" + file));
  const std::string some = index["weight_map"].members().at(0).first;
  for (const char* name : {"../model.safetensors", "/etc/a.safetensors", "..", "", ".hidden.safetensors",
                           "a/b.safetensors", "a\\b.safetensors", "config.json"}) {
    Json changed = index;
    changed["weight_map"][some] = name;
    copy.write(file, changed.dump());
    CHECK(contains(copy.refused(), "expected a .safetensors file of the folder"));
  }
  Json hostile = index;
  hostile["weight_map"][some] = "x\nerror: all is well\t\u202e.safetensors";
  copy.write(file, hostile.dump());
  CHECK(contains(copy.refused(), R"(got file 'x\nerror: all is well\t\u{202e}.safetensors')"));
  Json changed = index;
  changed["weight_map"][some] = "model-00009-of-00005.safetensors";
  copy.write(file, changed.dump());
  CHECK(contains(copy.refused(), "model-00009"));
  changed = index;
  changed["weight_map"]["ghost"] = index["weight_map"].members().at(0).second;
  copy.write(file, changed.dump());
  CHECK(contains(copy.refused(), "tensor 'ghost' is not in"));
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": {}}", "{\"weight_map\": 3}"}) {
    copy.write(file, text);
    CHECK(contains(copy.refused(), "index.json"));
  }
}

TEST_CASE("packed codes that are none, scales that are none and numbers that are not finite are refused") {
  const Copy codes("bitnet_packed");
  static const std::vector<uint8_t> threes(8 * 32, 0xFF);
  codes.change_tensors([](SafetensorsItem& item) {
    if (item.name == "model.layers.0.self_attn.q_proj.weight") item.data = threes.data();
    return true;
  });
  CHECK(contains(codes.refused(), "got code 3"));
  const Copy scales("bitnet_packed");
  static const float zero = 0;
  scales.change_tensors([](SafetensorsItem& item) {
    if (item.name == "model.layers.0.self_attn.q_proj.weight_scale") item.data = &zero;
    return true;
  });
  CHECK(contains(scales.refused(), "expected a positive number"));
  const Copy numbers("llama");
  static const std::vector<float> infinite(32, INFINITY);
  numbers.change_tensors([](SafetensorsItem& item) {
    if (item.name == "model.norm.weight") item.data = infinite.data();
    return true;
  });
  CHECK(contains(numbers.refused(), "'model.norm.weight', element 0"));
}

TEST_CASE("a tokenizer.json is copied in both directions, and skipped with a note where it does not fit") {
  const auto tokenizer = [](const std::string& letters) {
    std::string vocabulary;
    for (size_t i = 0; i < letters.size(); ++i)
      vocabulary += (i > 0 ? ", \"" : "\"") + std::string(1, letters[i]) + "\": " + std::to_string(i);
    return R"({"version": "1.0", "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "model": {"type": "BPE", "vocab": {)" +
           vocabulary + R"(}, "merges": []}})";
  };
  const Copy copy("llama");
  copy.write("tokenizer.json", tokenizer("abcdefg"));
  const ImportedModel first = import_hugging_face(copy.folder);
  REQUIRE(first.tokenizer != nullptr);
  CHECK(encode(*first.tokenizer, "bad") == std::vector<int32_t>{1, 0, 3});
  TempDir temp;
  save_imported(first, temp.file("m"));
  const auto held = tokenizer_of(read_checkpoint_header(temp.file("m")), temp.file("m"));
  REQUIRE(held != nullptr);
  const auto model = opened(temp.file("m"));
  export_hugging_face(model->model(), spec_of(temp.file("m")), held.get(), temp.file("out"));
  const ImportedModel second = import_hugging_face(temp.file("out"));
  REQUIRE(second.tokenizer != nullptr);
  CHECK(tokenizer_difference(*first.tokenizer, *second.tokenizer).empty());

  copy.write("tokenizer.json", tokenizer("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"));
  const ImportedModel third = import_hugging_face(copy.folder);
  CHECK(third.tokenizer == nullptr);
  REQUIRE(third.notes.size() == 1);
  CHECK(contains(third.notes[0], "it has 52 ids, the model 41"));
  copy.write("tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  const ImportedModel fourth = import_hugging_face(copy.folder);
  CHECK(fourth.tokenizer == nullptr);
  CHECK(contains(fourth.notes.at(0), "Unigram"));
}
