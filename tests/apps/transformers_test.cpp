// Models trained here in Hugging Face's program: the folder that is exported opens, and its logits are ours.
#include <cmath>
#include <fstream>

#include "apps/python.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/model_record.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Net {
  std::string name, model, rules;
  std::vector<std::string> options = {};  // of the export
};
const std::vector<Net>& nets() {
  static const std::vector<Net> all{
      {"gpt2", "gpt, keys: {layers: 2, heads: 4, dim: 64, context: 32}", ""},
      {"llama", "llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 96, rope: 500}",
       "quant: {rules: [{layers: \"layers.2.*\", weights: {dtype: int4, scheme: absmax, granularity: group(32)}}]}\n"},
      {"qwen2", "llama, keys: {layers: 1, heads: 4, kv_heads: 1, dim: 64, ffn: 96, qkv_bias: true}", ""}};
  return all;
}

// A run of 40 steps, exported to a folder.
void train_and_export(const TempDir& temp, const Net& net) {
  std::ofstream(temp.file(net.name + ".yaml"))
      << "version: 1\nrun: {name: tiny, seed: 3}\ndata:\n  tokenizer: chars\n"
         "  train: {format: tokens, file: a.txt, context: 32, order: random}\nmodel: {preset: "
      << net.model << "}\n"
      << net.rules << "batch: {global: 4}\noptim: {name: adamw, lr: 0.004}\ntrain: {stop: 40 steps}\n";
  const ProcessResult trained =
      cli({"train", temp.file(net.name + ".yaml"), "--data", temp.path(), "--out", temp.file(net.name)});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  std::vector<std::string> command{"export", temp.file(net.name), "-o", temp.file(net.name + "_hf")};
  command.insert(command.end(), net.options.begin(), net.options.end());
  const ProcessResult exported = cli(command);
  INFO(exported.err);
  REQUIRE(exported.code == 0);
}

void check_logits(const std::vector<Net>& all, const std::string& needs) {
  TempDir temp;
  std::ofstream text(temp.file("a.txt"), std::ios::binary);
  for (int i = 0; i < 40; ++i) text << "The " << i << " slings and arrows of outrageous fortune: a sea of troubles.\n";
  text.close();
  constexpr int64_t kSamples = 3, kRows = 32;
  Json lists = Json::array();
  std::vector<double> ids;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    Json list = Json::array();
    for (int64_t i = 0; i < kRows; ++i) {
      ids.push_back(static_cast<double>((7 * i * i + 5 * i + 11 * sample) % 29));
      list.push_back(static_cast<int64_t>(ids.back()));
    }
    lists.push_back(list);
  }
  std::ofstream(temp.file("ids.json")) << lists.dump();
  std::vector<std::string> arguments{temp.file("ids.json")};
  for (const Net& net : all) {
    train_and_export(temp, net);
    arguments.push_back(temp.file(net.name + "_hf"));
  }
  const std::string written = script_output("transformers_logits.py", arguments, needs);
  if (written.empty()) return;
  const Json logits = Json::parse(written);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto learner =
        load_evaluator(temp.file(all[i].name + "/last.safetensors"), find_loss("softmax_cross_entropy"), kSamples);
    const std::vector<double> ours =
        learner->predict(Tensor::from_elements({kSamples, kRows}, dtypes::int32, ids)).elements();
    double largest = 0, size = 0;
    auto at = ours.begin();
    for (const Json& sample : logits.at(i))
      for (const Json& row : sample)
        for (const Json& x : row) {
          REQUIRE(at != ours.end());
          largest = std::max(largest, std::abs(x.get<double>() - *at));
          size = std::max(size, std::abs(*at++));
        }
    CHECK(at == ours.end());
    INFO(all[i].name << ": differ by at most " << largest << " of " << size);
    CHECK(size > 1);
    CHECK(largest < 1e-4);
  }
}

}  // namespace

TEST_CASE("folders of gpt2, llama and qwen2 open in transformers, and their logits are ours") {
  check_logits(nets(), "transformers or torch");
}

TEST_CASE("folders of packed codes open in transformers with compressed-tensors, and their logits are ours") {
  if (run_program({python(), "-c", "import compressed_tensors"}).code != 0) {
    WARN("skipped: no compressed-tensors in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  const std::string llama = "llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 96, rope: 500}";
  const auto rule = [](const char* layers, const char* weights) {
    return std::string("{layers: \"") + layers + "\", weights: {" + weights + "}}";
  };
  check_logits({{"mixed",
                 llama,
                 "quant: {rules: [" + rule("layers.2.0.*", "dtype: int4, scheme: absmax, granularity: group(32)") +
                     ", " + rule("layers.2.1.0.0.*", "dtype: int8, scheme: absmax, granularity: channel") + ", " +
                     rule("layers.2.1.0.1.*", "dtype: uint3, scheme: affine, granularity: group(32)") + "]}\n",
                 {"--form", "packed"}},
                {"ternary",
                 "llama, keys: {layers: 1, heads: 4, kv_heads: 1, dim: 64, ffn: 96, qkv_bias: true}",
                 "quant: {rules: [" + rule("layers.2.*", "dtype: ternary, scheme: ternary") + "]}\n",
                 {"--form", "packed"}}},
               "transformers or torch");
}

TEST_CASE("adapters over an exported llama open in PEFT with our logits, and adapters saved by PEFT load here") {
  TempDir temp;
  std::ofstream text(temp.file("a.txt"), std::ios::binary);
  for (int i = 0; i < 40; ++i) text << "The " << i << " slings and arrows of outrageous fortune: a sea of troubles.\n";
  text.close();
  const Net llama{"llama", "llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 96, rope: 500}", ""};
  train_and_export(temp, llama);
  const auto adapted = [&](const std::string& name, const std::string& more) {
    const ProcessResult run = cli({"train", temp.file("llama.yaml"), "--data", temp.path(), "--out", temp.file(name),
                                   "model.init_from=" + temp.file("llama"),
                                   "adapters={layers: [\"layers.2.*\"], rank: 4, alpha: 8" + more + "}",
                                   "optim.lr=" + std::string(more.empty() ? "0.01" : "1e-12"), "train.stop=10 steps"});
    INFO(run.err);
    REQUIRE(run.code == 0);
    return load_evaluator(temp.file(name + "/last.safetensors"), find_loss("softmax_cross_entropy"), 1);
  };
  const auto first = adapted("first", "");
  REQUIRE(cli({"adapters", temp.file("first"), "-o", temp.file("lora")}).code == 0);
  std::vector<double> ids;
  Json list = Json::array();
  for (int64_t i = 0; i < 32; ++i) {
    ids.push_back(static_cast<double>((7 * i * i + 5 * i) % 29));
    list.push_back(static_cast<int64_t>(ids.back()));
  }
  std::ofstream(temp.file("ids.json")) << Json::array({list}).dump();
  const std::string written = script_output(
      "peft_logits.py", {temp.file("ids.json"), temp.file("llama_hf"), temp.file("lora"), temp.file("saved")},
      "peft, transformers or torch");
  if (written.empty()) return;
  const Tensor input = Tensor::from_elements({1, 32}, dtypes::int32, ids);
  const std::vector<double> ours = first->predict(input).elements();
  double largest = 0;
  auto at = ours.begin();
  const Json logits = Json::parse(written);
  for (const Json& row : logits.at(0))
    for (const Json& x : row) largest = std::max(largest, std::abs(x.get<double>() - *at++));
  CHECK(at == ours.end());
  CHECK(largest < 1e-4);
  const std::vector<double> again = adapted("again", ", init_from: " + temp.file("saved"))->predict(input).elements();
  double apart = 0;
  for (size_t i = 0; i < ours.size(); ++i) apart = std::max(apart, std::abs(again[i] - ours[i]));
  CHECK(apart < 1e-4);
}
