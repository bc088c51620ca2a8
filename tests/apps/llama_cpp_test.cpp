// Models trained here in llama.cpp. The client rounds the inputs of packed weights otherwise than we do, so both are
// compared with the exported file in double precision (tests/scripts/gguf_twin.py), which rounds them as each does.
// $BITGRAD_PYTHON: a Python with the packages xllamacpp, gguf and numpy; else python3.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>

#include "apps/python.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kTokens = 64, kPrompts = 10, kPromptIds = 6;

const std::string kLine =
    "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows of "
    "outrageous fortune, or to take arms against a sea of troubles, and by opposing end them. caf\xc3\xa9\t\\n\n";

struct Net {
  std::string name, preset, keys, weights, type;  // weights: of the rule for the blocks; type: of blk.0.ffn_down.weight
  std::string inputs = "none";                    // how ours are rounded, in words of gguf_twin.py
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

// A sum of at most 256 products of size about 1 in fp32: 256 * 2^-24 = 1.5e-5.
constexpr double kSum = 1.5e-5;

// Differences of log-probabilities at a step, the largest of all ids.
class Distances {
 public:
  explicit Distances(const Json& run) : run_(run) {}

  void add(size_t prompt, size_t step, const std::vector<double>& other) {
    const Json& row = run_.at("log_probabilities").at(prompt).at(step);
    double largest = 0;
    for (size_t id = 0; id < other.size(); ++id)
      if (!std::isnan(other[id])) largest = std::max(largest, std::abs(other[id] - row.at(id).get<double>()));
    all_.push_back(largest);
    const double spread = run_.at("spread").at(prompt).at(step).get<double>();
    exceeding_ += largest > kSum + 2 * spread;
  }
  double median() const { return sorted()[all_.size() / 2]; }
  double largest() const { return sorted().back(); }
  int64_t exceeding() const { return exceeding_; }

 private:
  std::vector<double> sorted() const {
    std::vector<double> out = all_;
    std::sort(out.begin(), out.end());
    return out;
  }

  const Json& run_;
  std::vector<double> all_;
  int64_t exceeding_ = 0;  // beyond what fp32 explains
};

// In more than half of the steps no number was near a tie, so nothing but sums in fp32 is between the two.
void check_distances(const std::string& name, const Distances& d, double median) {
  INFO(name << ": median " << d.median() << ", largest " << d.largest());
  CHECK(d.median() < median);
  CHECK(d.exceeding() == 0);
}

std::vector<double> client_row(const Json& answer, size_t step, int64_t vocabulary) {
  std::vector<double> out;
  for (int64_t id = 0; id < vocabulary; ++id) {
    const Json& x = answer.at("logprobs").at(step).at(static_cast<size_t>(id));
    out.push_back(x.is_null() ? std::nan("") : x.get<double>());
  }
  return out;
}

// Both sides on the client's path.
void check_both(const Net& net, Generator& ours, const std::vector<std::vector<int32_t>>& prompts, const Json& answers,
                const Json& twins) {
  Distances theirs_off(twins.at(0)), ours_off(twins.at(1));
  int64_t parted = 0, vocabulary = 0;
  double rounding = 0;
  for (size_t p = 0; p < prompts.size(); ++p) {
    const Json& ids = answers.at(p).at("ids");
    REQUIRE(ids.size() == static_cast<size_t>(kTokens));
    ours.truncate(0);
    std::span<const float> scores = ours.feed(prompts[p]);
    bool same = true;
    for (size_t step = 0; step < ids.size(); ++step) {
      const std::vector<double> mine = log_probabilities(scores);
      vocabulary = std::ssize(mine);
      const std::vector<double> theirs = client_row(answers.at(p), step, vocabulary);
      theirs_off.add(p, step, theirs);
      ours_off.add(p, step, mine);
      for (size_t id = 0; id < mine.size(); ++id)
        if (!std::isnan(theirs[id])) rounding = std::max(rounding, std::abs(mine[id] - theirs[id]));
      const auto id = ids.at(step).get<int32_t>();
      same = same && std::max_element(mine.begin(), mine.end()) - mine.begin() == id;
      if (step + 1 < ids.size()) scores = ours.feed(std::vector<int32_t>{id});
    }
    parted += same ? 0 : 1;
  }
  std::cout << net.name << ": " << kPrompts - parted << " of " << kPrompts
            << " prompts have the same tokens; log-probabilities, median and largest difference: client "
            << theirs_off.median() << ' ' << theirs_off.largest() << ", ours " << ours_off.median() << ' '
            << ours_off.largest() << ", client from ours " << rounding << " at most\n";
  check_distances("client", theirs_off, 2e-6);  // docs/interop.md
  check_distances("ours", ours_off, kSum);
}

// The largest difference of a log-probability from the client's at each step, of the file imported with inputs rounded
// so. Sorted.
std::vector<double> differences(const TempDir& temp, const std::string& inputs,
                                const std::vector<std::vector<int32_t>>& prompts, const Json& answers) {
  const ProcessResult read =
      cli({"import", temp.file("m.gguf"), "-o", temp.file("read.safetensors"), "--inputs", inputs, "--force"});
  INFO(read.err);
  REQUIRE(read.code == 0);
  const auto learner = load_evaluator(temp.file("read.safetensors"), find_loss("softmax_cross_entropy"), 1);
  Generator ours(*learner);
  std::vector<double> out;
  for (size_t p = 0; p < prompts.size(); ++p) {
    const Json& ids = answers.at(p).at("ids");
    ours.truncate(0);
    std::span<const float> scores = ours.feed(prompts[p]);
    for (size_t step = 0; step < ids.size(); ++step) {
      const std::vector<double> mine = log_probabilities(scores),
                                theirs = client_row(answers.at(p), step, std::ssize(mine));
      double largest = 0;
      for (size_t id = 0; id < mine.size(); ++id)
        if (!std::isnan(theirs[id])) largest = std::max(largest, std::abs(mine[id] - theirs[id]));
      out.push_back(largest);
      if (step + 1 < ids.size()) scores = ours.feed(std::vector<int32_t>{ids.at(step).get<int32_t>()});
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Inputs in the client's blocks leave less than half of the difference of floats. The rest: it rounds scales to fp16
// once it has the codes, which turns some codes of later layers.
void check_inputs(const TempDir& temp, const Net& net, const std::vector<std::vector<int32_t>>& prompts,
                  const Json& answers) {
  const std::vector<double> floats = differences(temp, "float", prompts, answers),
                            blocks = differences(temp, "int8_block", prompts, answers);
  std::cout << net.name << ": client from the imported file, median and largest: inputs float "
            << floats[floats.size() / 2] << ' ' << floats.back() << ", int8_block " << blocks[blocks.size() / 2] << ' '
            << blocks.back() << '\n';
  CHECK(blocks[blocks.size() / 2] < floats[floats.size() / 2] / 2);
}

Json twins_of(const TempDir& temp, const Net& net, const std::vector<std::vector<int32_t>>& prompts,
              const Json& answers) {
  Json paths = Json::array();
  for (size_t p = 0; p < prompts.size(); ++p) {
    Json path = prompts[p];
    for (size_t i = 0; i + 1 < answers.at(p).at("ids").size(); ++i) path.push_back(answers.at(p).at("ids").at(i));
    paths.push_back(path);
  }
  const int64_t copies = net.inputs == "none" ? 0 : 16;
  const Json runs = Json::array({{{"inputs", "client"}, {"copies", 16}}, {{"inputs", net.inputs}, {"copies", copies}}});
  std::ofstream(temp.file("r.json")) << Json{{"paths", paths}, {"first", kPromptIds - 1}, {"runs", runs}}.dump();
  const std::string written =
      script_output("gguf_twin.py", {temp.file("m.gguf"), temp.file("r.json")}, "gguf or numpy");
  return written.empty() ? Json(nullptr) : Json::parse(written);
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
  const std::string text_of_all = kLine + kLine;
  std::ofstream(temp.file("p.json")) << Json{{"prompts", list}, {"texts", {text_of_all}}}.dump();
  const std::string written = script_output(
      "llama_cpp_client.py",
      {temp.file("m.gguf"), std::to_string(tokenizer->vocabulary()), std::to_string(kTokens), temp.file("p.json")},
      "xllamacpp");
  if (written.empty()) return;
  const Json answer = Json::parse(written), &answers = answer.at("answers");
  CHECK(answer.at("texts").at(0).at("ids").get<std::vector<int32_t>>() == encode(*tokenizer, text_of_all));
  CHECK(answer.at("texts").at(0).at("text") == text_of_all);
  const Json twins = twins_of(temp, net, prompts, answers);
  if (twins.is_null()) return;
  const auto learner = load_evaluator(checkpoint, find_loss("softmax_cross_entropy"), 1);
  Generator ours(*learner);
  check_both(net, ours, prompts, answers, twins);
  if (net.inputs == "none" && !net.weights.empty()) check_inputs(temp, net, prompts, answers);
}

const std::string kSmall = "layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 128";

}  // namespace

TEST_CASE("int4 weights in groups of 32 are Q4_0, and llama.cpp computes what we do") {
  check_beside_client({"llama int4", "llama", kSmall,
                       "weights: {dtype: int4, scheme: absmax, granularity: group(32), scale_dtype: fp16}", "Q4_0"});
}

TEST_CASE("int8 weights in groups of 32 are Q8_0, and llama.cpp computes what we do") {
  check_beside_client({"llama int8", "llama", kSmall,
                       "weights: {dtype: int8, scheme: absmax, granularity: group(32), scale_dtype: fp16}", "Q8_0"});
}

TEST_CASE("ternary weights with one scale are Q2_0 and a scale beside it, and llama.cpp computes what we do") {
  check_beside_client({"llama ternary", "llama", kSmall, "weights: {dtype: ternary, scheme: ternary}", "Q2_0"});
}

TEST_CASE("signs with a scale a channel are Q1_0, and llama.cpp computes what we do") {
  check_beside_client({"llama one bit", "llama", "layers: 2, heads: 4, kv_heads: 2, dim: 128, ffn: 256",
                       "weights: {dtype: bint1, scheme: binary, alpha: channel, scale_dtype: fp16}", "Q1_0"});
}

TEST_CASE("preset bitnet is TQ2_0 and a scale beside it, and llama.cpp computes what we do") {
  check_beside_client(
      {"bitnet", "bitnet", "layers: 1, heads: 4, kv_heads: 2, dim: 256, ffn: 256", "", "TQ2_0", "token"});
}

TEST_CASE("preset gpt is gpt2 with zeros for biases, and llama.cpp computes what we do") {
  check_beside_client({"gpt", "gpt", "layers: 2, heads: 4, dim: 64, context: 80", "", "F32"});
}

// The golden folder is scaled as Llama 3.1 is, and has the logits of transformers.
TEST_CASE("scaled frequencies are factors in the file, and llama.cpp has the logits of transformers") {
  TempDir temp;
  const std::string folder = source_path("tests/golden/hugging_face/llama");
  ImportedModel model = import_hugging_face(folder);
  model.tokenizer = make_tokenizer("chars", "abcdefghijklmnopqrstuvwxyz");  // the client asks for one
  save_imported(model, temp.file("m.safetensors"));
  const ProcessResult exported = cli({"export", temp.file("m.safetensors"), "-o", temp.file("m.gguf")});
  INFO(exported.err);
  REQUIRE(exported.code == 0);
  REQUIRE(GgufFile::read(temp.file("m.gguf")).contains("rope_freqs.weight"));
  std::ifstream in(folder + "/golden.json");
  const Json golden = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  const auto ids = golden["ids"].get<std::vector<int32_t>>();
  Json prompts = Json::array();
  for (size_t n = 1; n <= ids.size(); ++n)
    prompts.push_back(std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n)));
  std::ofstream(temp.file("p.json")) << Json{{"prompts", prompts}, {"texts", Json::array()}}.dump();
  const std::string written =
      script_output("llama_cpp_client.py", {temp.file("m.gguf"), "41", "1", temp.file("p.json")}, "xllamacpp");
  if (written.empty()) return;
  const Json answers = Json::parse(written).at("answers");
  double largest = 0;
  for (size_t n = 0; n < ids.size(); ++n) {
    const auto logits = golden["logits"].at(n).get<std::vector<float>>();
    const std::vector<double> expected = log_probabilities(logits), got = client_row(answers.at(n), 0, 41);
    for (size_t id = 0; id < got.size(); ++id) largest = std::max(largest, std::abs(got[id] - expected[id]));
  }
  INFO("log-probabilities differ by at most " << largest);
  CHECK(largest < kSum);
}

// A scale a token is the client's scale a block of 32. It makes codes by the fp32 scale, we by its fp16.
TEST_CASE("int8 inputs a token on rows of 32 are rounded nearly as llama.cpp rounds them") {
  const std::string inputs = ", activations: {dtype: int8, scheme: absmax, granularity: token, scale_dtype: fp16}";
  check_beside_client({"llama int4, rows of 32", "llama", "layers: 2, heads: 4, kv_heads: 2, dim: 32, ffn: 32",
                       "weights: {dtype: int4, scheme: absmax, granularity: group(32), scale_dtype: fp16}" + inputs,
                       "Q4_0", "token16"});
}
