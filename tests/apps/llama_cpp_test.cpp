// Models trained here in llama.cpp: the same greedy tokens, or scores that agree where rounding makes them part.
// $BITGRAD_PYTHON: a Python with the package xllamacpp; else python3.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/train/generator.h"
#include "bitgrad/train/model_record.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int kAbsent = 77;  // exit status of the script without the package
constexpr int64_t kTokens = 64, kPrompts = 10, kPromptIds = 6;

const std::string kLine =
    "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows of "
    "outrageous fortune, or to take arms against a sea of troubles, and by opposing end them. caf\xc3\xa9\n";

struct Net {
  std::string name, preset, keys, weights, type;  // weights: of the rule for the blocks; type: of blk.0.ffn_down.weight
  double bound;                                   // of log-probabilities
};

std::string config_of(const Net& net) {
  const std::string rules =
      net.weights.empty() ? "" : "quant: {rules: [{layers: \"layers.2.*\", " + net.weights + "}]}\n";
  return "version: 1\nrun: {name: tiny, seed: 3}\ndata:\n  tokenizer: chars\n"
         "  train: {format: tokens, file: a.txt, context: 80, order: random}\n"
         "model: {preset: " +
         net.preset + ", keys: {" + net.keys + "}}\n" + rules +
         "batch: {global: 4}\noptim: {name: adamw, lr: 0.004}\ntrain: {stop: 60 steps}\n";
}

std::string python() {
  const char* const named = std::getenv("BITGRAD_PYTHON");
  return named != nullptr ? named : "python3";
}

std::vector<std::vector<int32_t>> prompts_of(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = encode(tokenizer, kLine);
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < kPrompts; ++i) prompts.emplace_back(ids.begin() + 13 * i, ids.begin() + 13 * i + kPromptIds);
  return prompts;
}

std::vector<double> log_probabilities(std::span<const float> scores) {
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const float x : scores) sum += std::exp(static_cast<double>(x) - top);
  std::vector<double> out;
  for (const float x : scores) out.push_back(static_cast<double>(x) - top - std::log(sum));
  return out;
}

struct Agreement {
  int64_t same = 0, parted = 0;  // prompts
  double largest = 0;            // difference of a log-probability on the client's own path, up to where they part
  double largest_gap = 0;        // of our two best where they part
  std::vector<double> steps = {};
};

// Follows the client token by token.
void follow(Generator& ours, const std::vector<int32_t>& prompt, const Json& answer, Agreement& out) {
  ours.truncate(0);
  std::span<const float> scores = ours.feed(prompt);
  for (int64_t i = 0; i < kTokens; ++i) {
    const std::vector<double> mine = log_probabilities(scores);
    const Json& row = answer.at("logprobs").at(static_cast<size_t>(i));
    double step = 0;
    for (size_t id = 0; id < mine.size(); ++id)
      if (!row.at(id).is_null()) step = std::max(step, std::abs(mine[id] - row.at(id).get<double>()));
    out.steps.push_back(step);
    out.largest = std::max(out.largest, step);
    const auto best = std::max_element(mine.begin(), mine.end()) - mine.begin();
    const auto theirs = answer.at("ids").at(static_cast<size_t>(i)).get<int32_t>();
    if (best != theirs) {
      ++out.parted;
      out.largest_gap = std::max(out.largest_gap, mine[static_cast<size_t>(best)] - mine[static_cast<size_t>(theirs)]);
      return;
    }
    if (i + 1 < kTokens) scores = ours.feed(std::vector<int32_t>{theirs});
  }
  ++out.same;
}

void check_beside_client(const Net& net) {
  INFO(net.name);
  TempDir temp;
  std::string text;
  for (int i = 0; i < 6; ++i) text += kLine;
  std::ofstream(temp.file("a.txt"), std::ios::binary) << text;
  std::ofstream(temp.file("c.yaml")) << config_of(net);
  const ProcessResult trained = cli({"train", temp.file("c.yaml"), "--data", temp.path(), "--out", temp.file("run")});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const ProcessResult exported = cli({"export", temp.file("run"), "-o", temp.file("m.gguf")});
  INFO(exported.err << exported.out);
  REQUIRE(exported.code == 0);
  CHECK(exported.out.find("0 rounded") != std::string::npos);
  const GgufFile file = GgufFile::read(temp.file("m.gguf"));
  CHECK(gguf_type(file.entry("blk.0.ffn_down.weight").type).name == net.type);

  const std::string checkpoint = temp.file("run/last.safetensors");
  const auto tokenizer = tokenizer_of(read_checkpoint_header(checkpoint), checkpoint);
  const auto prompts = prompts_of(*tokenizer);
  Json list = Json::array();
  for (const auto& prompt : prompts) list.push_back(prompt);
  std::ofstream(temp.file("p.json")) << list.dump();
  const ProcessResult client =
      run_program({python(), BITGRAD_SOURCE_DIR "/tests/scripts/llama_cpp_client.py", temp.file("m.gguf"),
                   std::to_string(tokenizer->vocabulary()), std::to_string(kTokens), temp.file("p.json")});
  if (client.code == kAbsent || client.code == 127) SKIP("no xllamacpp in " << python() << ": set BITGRAD_PYTHON");
  INFO(client.err);
  REQUIRE(client.code == 0);
  const Json answers = Json::parse(client.out);

  const auto learner = open_model(checkpoint, find_loss("softmax_cross_entropy"), 1);
  Generator ours(*learner);
  Agreement a;
  for (size_t i = 0; i < prompts.size(); ++i) {
    REQUIRE(answers.at(i).at("ids").size() == static_cast<size_t>(kTokens));
    follow(ours, prompts[i], answers.at(i), a);
  }
  std::sort(a.steps.begin(), a.steps.end());
  const double median = a.steps[a.steps.size() / 2];
  std::cout << net.name << ": " << a.same << " prompts with the same tokens, " << a.parted
            << " part; log-probabilities "
            << "differ by " << median << " (median), " << a.largest << " at most; gap where they part " << a.largest_gap
            << '\n';
  CHECK(a.largest < net.bound);
  CHECK(a.largest_gap < 2 * net.bound);
}

// Inputs are not rounded here, and to int8 in the client (Q8_0: blocks of 32; Q8_K for TQ2_0: of 256): half a step of
// 1/127 of a block's largest number, over two blocks of layers. docs/interop.md has the measured differences.
const std::string kSmall = "layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 128";

}  // namespace

TEST_CASE("int4 weights in groups of 32 are Q4_0, and llama.cpp writes the same tokens") {
  check_beside_client({"llama int4", "llama", kSmall,
                       "weights: {dtype: int4, scheme: absmax, granularity: group(32), scale_dtype: fp16}", "Q4_0",
                       0.05});
}

TEST_CASE("int8 weights in groups of 32 are Q8_0, and llama.cpp writes the same tokens") {
  check_beside_client({"llama int8", "llama", kSmall,
                       "weights: {dtype: int8, scheme: absmax, granularity: group(32), scale_dtype: fp16}", "Q8_0",
                       0.05});
}

TEST_CASE("ternary weights with one scale are Q2_0 and a scale beside it, and llama.cpp writes the same tokens") {
  check_beside_client({"llama ternary", "llama", kSmall, "weights: {dtype: ternary, scheme: ternary}", "Q2_0", 0.05});
}

// Inputs a token here, blocks of 256 in the client: rounded apart.
TEST_CASE("preset bitnet is TQ2_0 and a scale beside it, and llama.cpp writes the same tokens") {
  check_beside_client({"bitnet", "bitnet", "layers: 1, heads: 4, kv_heads: 2, dim: 256, ffn: 256", "", "TQ2_0", 0.2});
}

// llama.cpp takes gelu from a table in fp16.
TEST_CASE("preset gpt is gpt2 with zeros for biases, and llama.cpp writes the same tokens") {
  check_beside_client({"gpt", "gpt", "layers: 2, heads: 4, dim: 64, context: 80", "", "F32", 0.02});
}
