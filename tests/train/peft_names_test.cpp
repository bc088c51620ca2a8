// Adapters with the names of PEFT: what is written for a llama, and what PEFT writes for one.
#include <algorithm>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/run/adapters.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kModule = "base_model.model.model.layers.0.self_attn.";

struct Adapted {
  std::unique_ptr<Learner> learner;
  std::string record;
  // A llama of one block: q of 8 rows, k and v of 4.
  explicit Adapted(int rank, int alpha, int seed = 5, const std::string& layers = "layers.2.*") {
    start("{init_from: x, preset: llama, keys: {vocabulary: 33, layers: 1, heads: 2, kv_heads: 1, dim: 8, ffn: 12}}",
          concat("{layers: [\"", layers, "\"], rank: ", rank, ", alpha: ", alpha, '}'), seed);
  }
  Adapted(const std::string& model, const std::string& adapters) { start(model, adapters, 5); }
  void start(const std::string& model, const std::string& adapters, int seed) {
    const RunConfig config = parse_config(
        concat("version: 1\nrun: {name: small, seed: ", seed,
               "}\ndata: {root: /nowhere, tokenizer: bytes, train: {format: tokens, file: a.txt, context: 6}}\nmodel: ",
               model, "\nadapters: ", adapters,
               "\nbatch: {global: 2}\noptim: {name: adamw, lr: 0.1}\ntrain: {stop: 4 steps}\n"),
        "small.yaml", {});
    Form in;
    in.sample = {6};
    in.dtype = dtypes::int32;
    in.ids = 33;
    learner = build_learner(config, in, 33, 100);
    record = to_text(*model_record(*learner));
  }
  void train() {
    for (int i = 0; i < 3; ++i) learner->microbatch(ids_tensor(some_ids(12, 1), 2), ids_tensor(some_ids(12, 2), 2));
  }
  std::vector<double> logits() { return learner->predict(ids_tensor(some_ids(12, 3), 2)).elements(); }
};

Json config_of(const std::string& folder) {
  const std::vector<uint8_t> bytes = read_file(folder + "/adapter_config.json", 1 << 20);
  return Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

TEST_CASE("Adapters of a llama have the names of its modules in transformers: q, k and v share lora_A") {
  TempDir temp;
  Adapted first(4, 8);
  first.train();
  const SavedAdapters saved = save_adapters(temp.file("lora"), first.learner->model(), first.record, "org/base");
  CHECK(saved.peft);
  const NamedTensors tensors = load_tensors(temp.file("lora/adapter_model.safetensors"));
  CHECK(tensors.size() == 14);  // A and B of q, k, v, o, gate, up, down
  CHECK(tensors.at(kModule + "q_proj.lora_B.weight").shape() == Shape{8, 4});
  CHECK(tensors.at(kModule + "k_proj.lora_B.weight").shape() == Shape{4, 4});
  CHECK(tensors.at(kModule + "v_proj.lora_A.weight").elements() ==
        tensors.at(kModule + "q_proj.lora_A.weight").elements());
  const Json config = config_of(temp.file("lora"));
  CHECK(config.at("base_model_name_or_path") == "org/base");
  CHECK(config.at("task_type") == "CAUSAL_LM");
  CHECK(config.at("fan_in_fan_out") == false);
  const auto& targets = config.at("target_modules").items();
  CHECK(targets.size() == 7);
  CHECK(std::find(targets.begin(), targets.end(), Json("model.layers.0.mlp.gate_proj")) != targets.end());
  // The way back, bit for bit.
  const std::vector<double> right = first.logits();
  Adapted second(4, 8);
  CHECK(second.logits() != right);
  load_adapters(temp.file("lora"), second.learner->model(), second.record);
  CHECK(second.logits() == right);
  // Over a base of other values: said.
  Adapted other(4, 8, 6);
  const LogLines log;
  load_adapters(temp.file("lora"), other.learner->model(), other.record);
  CHECK(std::any_of(log.lines.begin(), log.lines.end(),
                    [](const std::string& line) { return contains(line, "were trained over another base model"); }));
}

TEST_CASE("What PEFT trains apart is joined where the rank is enough, and alpha / r is kept") {
  TempDir temp;
  NamedTensors tensors;
  const auto add = [&](const std::string& name, int64_t rows, double value) {
    std::vector<double> a(16), b(static_cast<size_t>(2 * rows));
    for (size_t i = 0; i < a.size(); ++i) a[i] = value * static_cast<double>(i + 1) / 64;
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i % 5) / 8;
    tensors[kModule + name + ".lora_A.weight"] = Tensor::from_elements({2, 8}, dtypes::fp32, a);
    tensors[kModule + name + ".lora_B.weight"] = Tensor::from_elements({rows, 2}, dtypes::fp32, b);
  };
  add("q_proj", 8, 1);
  add("v_proj", 4, -2);
  file_system().make_directories(temp.file("peft"));
  save_tensors(temp.file("peft/adapter_model.safetensors"), tensors, {{"format", "pt"}});
  const auto configure = [&](const Json& more) {
    Json config{{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 16}, {"rank_pattern", Json::object()}};
    config.update(more);
    write_file_atomically(temp.file("peft/adapter_config.json"), config.dump());
  };
  configure(Json::object());
  const std::string qkv = "layers.2.0.0.0.body.1";
  Adapted small(2, 2, 5, qkv);
  CHECK(contains(error_of([&] { load_adapters(temp.file("peft"), small.learner->model(), small.record); }),
                 "Set adapters.rank to 4"));
  Adapted enough(4, 8, 5, qkv);
  load_adapters(temp.file("peft"), enough.learner->model(), enough.record);
  for (const AdaptedLayer& l : adapted_layers(enough.learner->model())) {
    if (l.slot->weight().shape()[0] != 16) continue;
    const std::vector<double> b = l.slot->adapter()->b().value().elements();
    // Row 1 of q: B of PEFT is 2/8, 3/8 with scale 8; ours has scale 2. v's columns are those of its own A.
    CHECK(std::vector<double>(b.begin() + 4, b.begin() + 8) == std::vector<double>{1, 1.5, 0, 0});
    CHECK(std::vector<double>(b.begin() + 52, b.begin() + 56) == std::vector<double>{0, 0, 1, 1.5});
    CHECK(l.slot->adapter()->a().value().elements()[16] == -2.0 / 64);
  }
  // Adapters of more layers than the file has: which it has, and how to name them.
  Adapted more(4, 8);
  const std::string held = error_of([&] { load_adapters(temp.file("peft"), more.learner->model(), more.record); });
  CHECK(contains(held,
                 "The file has adapters of layers.2.0.0.0.body.1. Set adapters.layers to "
                 "[\"layers.2.0.0.0.body.1\"]."));
  configure({{"use_dora", true}});
  CHECK(contains(error_of([&] { load_adapters(temp.file("peft"), enough.learner->model(), enough.record); }),
                 "use_dora: got true, which is not read."));
}

// Transformers multiplies by the weight plus 1 there.
TEST_CASE("Norms of a Gemma that train beside adapters are less 1 in PEFT's file, and 1 is added when they are read") {
  const std::string model =
      "{init_from: x, layers: [{embedding: {num: 33, dim: 16, flat: false, scale: 4}}, {residual: {body: [{rms_norm: "
      "{}}, {linear: {out: 32, bias: false}}, {attention: {heads: 4, kv_heads: 2, qk_norm: head, qk_eps: 1e-5, rope: "
      "100}}, {linear: {out: 16, bias: false}}, {rms_norm: {}}]}}, {residual: {body: [{rms_norm: {}}, {linear: {out: "
      "48, bias: false}}, {geglu_tanh: {}}, {linear: {out: 16, bias: false}}, {rms_norm: {}}]}}, {rms_norm: {}}, "
      "{head: {tie: layers.0}}]}";
  const std::string adapters = "{layers: [layers.1.body.1], rank: 2, alpha: 4, train: [layers.3, layers.1.body.0]}";
  const std::map<std::string, std::string> names{
      {"layers.3.gamma", "base_model.model.model.norm.weight"},
      {"layers.1.body.0.gamma", "base_model.model.model.layers.0.input_layernorm.weight"}};
  const auto gamma = [](const Adapted& of, const std::string& path) {
    for (const auto& [at, parameter] : of.learner->model().parameters_at(kModelRoot))
      if (at == path) return parameter->value().elements();
    return std::vector<double>{};
  };
  TempDir temp;
  Adapted first(model, adapters);
  first.train();
  CHECK(save_adapters(temp.file("lora"), first.learner->model(), first.record, "org/base").peft);
  const std::string file = temp.file("lora/adapter_model.safetensors");
  NamedTensors tensors = load_tensors(file);
  for (const auto& [path, name] : names) {
    INFO(path);
    const std::vector<double> ours = gamma(first, path);
    REQUIRE(ours.size() == 16);
    REQUIRE(tensors.count(name) == 1);
    const std::vector<double> theirs = tensors.at(name).elements();
    REQUIRE(theirs.size() == 16);
    for (size_t i = 0; i < 16; ++i) CHECK(theirs[i] == static_cast<double>(static_cast<float>(ours[i] - 1)));
    CHECK(std::any_of(ours.begin(), ours.end(), [](double x) { return x != 1; }));
  }
  Adapted second(model, adapters);
  CHECK(second.logits() != first.logits());
  load_adapters(temp.file("lora"), second.learner->model(), second.record);
  CHECK(second.logits() == first.logits());
  // As PEFT writes it: zeros are a norm that multiplies by 1.
  for (const auto& [path, name] : names)
    tensors[name] =
        Tensor::from_elements({16}, dtypes::fp32, std::vector<double>(16, path == "layers.3.gamma" ? 0 : 2));
  save_tensors(file, tensors, {{"format", "pt"}});
  load_adapters(temp.file("lora"), second.learner->model(), second.record);
  CHECK(gamma(second, "layers.3.gamma") == std::vector<double>(16, 1));
  CHECK(gamma(second, "layers.1.body.0.gamma") == std::vector<double>(16, 3));
}
