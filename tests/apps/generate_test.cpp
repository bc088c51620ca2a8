// bitgrad generate: texts of runs and files, options, and what it refuses.
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kText =
    "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows of "
    "outrageous fortune, or to take arms against a sea of troubles, and by opposing end them.\n";

constexpr const char* kConfig = R"yaml(version: 1
run: {name: small_gpt, seed: 3}
data:
  tokenizer: chars
  train: {format: tokens, file: a.txt, context: 16, order: random}
model:
  layers:
    - embedding: {num: 27, dim: 16, flat: false, weights: {init: "normal(0,0.3)"}}
    - residual: {body: [{rms_norm: {}}, {linear: {out: 32}}, {attention: {heads: 2, kv_heads: 1, rope: 100}}, {linear: {out: 16}}]}
    - residual: {body: [{rms_norm: {}}, {linear: {out: 32}}, {gelu: {}}, {linear: {out: 16}}]}
    - rms_norm: {}
    - head: {tie: layers.0}
batch: {global: 8}
optim: {name: adamw, lr: 0.01}
train: {stop: 120 steps}
)yaml";

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// A run, trained once for all tests of this file.
struct Run {
  Run() {
    std::string text;
    for (int i = 0; i < 6; ++i) text += kText;
    write(temp.file("a.txt"), text);
    write(temp.file("c.yaml"), kConfig);
    trained = cli({"train", temp.file("c.yaml"), "--data", temp.path(), "--out", path(), "quant.recipe=w8a8"});
    std::filesystem::remove(temp.file("a.txt"));
  }
  std::string path() const { return temp.file("run"); }
  TempDir temp;
  ProcessResult trained;
};
const Run& run() {
  static const Run the_run;
  INFO(the_run.trained.err);
  REQUIRE(the_run.trained.code == 0);
  return the_run;
}

ProcessResult generate(std::vector<std::string> arguments, const std::string& target = run().path()) {
  arguments.insert(arguments.begin(), {"generate", target});
  return cli(arguments);
}
Json json_of(std::vector<std::string> arguments, const std::string& target = run().path()) {
  arguments.emplace_back("--json");
  const ProcessResult r = generate(arguments, target);
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(r.err.empty());
  return Json::parse(r.out);
}
std::string text_of(const Json& j, size_t sample = 0) { return j.at("samples").at(sample).at("text").text(); }

}  // namespace

TEST_CASE("generate goes on with a prompt, from a run folder, its checkpoint and a converted model") {
  const Json j = json_of({"--prompt", "to be", "--tokens", "40", "--temperature", "0"});
  CHECK(j.at("prompt").size() == 5);
  REQUIRE(j.at("samples").size() == 1);
  CHECK(j.at("samples").at(0).at("ids").size() == 40);
  CHECK(j.at("samples").at(0).at("stop") == "tokens");
  CHECK(text_of(j).size() == 40);
  CHECK(j.at("tokens_per_s").get<double>() > 0);
  CHECK(j.at("load_s").get<double>() > 0);
  CHECK(j.at("peak_bytes").get<int64_t>() > int64_t{1} << 20);
  CHECK(j.at("cache").at("kind") == "fp32");
  CHECK(j.at("cache").at("bytes") == (64 + 64) * 8 * 4);  // k and v in blocks of 64 rows
  const ProcessResult plain = generate({"--prompt", "to be", "--tokens", "40", "--temperature", "0"});
  CHECK(plain.out == "to be" + text_of(j) + (text_of(j).ends_with('\n') ? "" : "\n"));
  CHECK(contains(plain.err, "40 tokens, "));
  CHECK(contains(plain.err, "cache fp32, 4096 bytes"));
  const std::string model = run().temp.file("model.safetensors");
  REQUIRE(cli({"convert", run().path(), "-o", model, "--force"}).code == 0);
  for (const std::string& target : {run().path() + "/last.safetensors", model})
    CHECK(text_of(json_of({"--prompt", "to be", "--tokens", "40", "--temperature", "0"}, target)) == text_of(j));
  for (const std::vector<std::string>& how :
       std::vector<std::vector<std::string>>{{"--no-cache"}, {"device.threads=1"}, {"run.bits=strict"}}) {
    std::vector<std::string> arguments{"--prompt", "to be", "--tokens", "40", "--temperature", "0"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Json other = json_of(arguments);
    if (how[0] != "run.bits=strict") CHECK(text_of(other) == text_of(j));
    if (how[0] == "--no-cache") CHECK(other.at("cache").at("kind") == "none");
  }
  for (const char* kv : {"bf16", "int8"}) {
    const Json other = json_of({"--prompt", "to be", "--tokens", "40", "--kv", kv});
    CHECK(other.at("cache").at("kind") == kv);
    CHECK(text_of(other).size() == 40);
  }
}

TEST_CASE("samples, seeds and stop texts") {
  const Json j = json_of({"--prompt", "the ", "--tokens", "30", "--samples", "3", "--seed", "5", "--top-k", "9",
                          "--top-p", "0.9", "--min-p", "0.01", "--repetition-penalty", "1.1", "--temperature", "0.9"});
  REQUIRE(j.at("samples").size() == 3);
  CHECK(text_of(j, 0) != text_of(j, 1));
  const ProcessResult plain =
      generate({"--prompt", "the ", "--tokens", "30", "--samples", "3", "--seed", "5", "--top-k", "9", "--top-p", "0.9",
                "--min-p", "0.01", "--repetition-penalty", "1.1", "--temperature", "0.9"});
  for (size_t i = 0; i < 3; ++i) CHECK(contains(plain.out, "the " + text_of(j, i)));
  CHECK(text_of(json_of({"--prompt", "the ", "--tokens", "30"})) ==
        text_of(json_of({"--prompt", "the ", "--tokens", "30"})));
  CHECK(text_of(json_of({"--prompt", "the ", "--tokens", "30"})) !=
        text_of(json_of({"--prompt", "the ", "--tokens", "30", "--seed", "1"})));
  const std::string all = text_of(j);
  const std::string stop = all.substr(7, 2);
  const Json stopped = json_of({"--prompt",
                                "the ",
                                "--tokens",
                                "30",
                                "--seed",
                                "5",
                                "--top-k",
                                "9",
                                "--top-p",
                                "0.9",
                                "--min-p",
                                "0.01",
                                "--repetition-penalty",
                                "1.1",
                                "--temperature",
                                "0.9",
                                "--stop",
                                "zzzz",
                                "--stop",
                                stop});
  CHECK(text_of(stopped) == all.substr(0, all.find(stop)));
  CHECK(stopped.at("samples").at(0).at("stop") == "stop");
  // Ids in place of a text: the same prompt.
  std::string ids;
  for (size_t i = 0; i < j.at("prompt").size(); ++i)
    ids += (i > 0 ? "," : "") + std::to_string(j.at("prompt").at(i).get<int64_t>());
  CHECK(text_of(json_of({"--ids", ids, "--tokens", "30"})) == text_of(json_of({"--prompt", "the ", "--tokens", "30"})));
  CHECK(text_of(json_of({"--prompt", "the ", "--tokens", "0"})).empty());
}

TEST_CASE("a prompt from standard input, and one longer than the context") {
  write(run().temp.file("prompt.txt"), kText);
  const std::string command = "cat " + run().temp.file("prompt.txt") + " | " + kProgram + " generate " + run().path() +
                              " --prompt - --tokens 5 --json";
  const ProcessResult r = run_program({"/bin/sh", "-c", command});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json j = Json::parse(r.out);
  CHECK(j.at("prompt").size() == std::string(kText).size());
  CHECK(j.at("dropped") == 184);  // of 198, with a context of 16
  CHECK(contains(generate({"--prompt", kText, "--tokens", "1"}).err,
                 "note: the prompt has 198 tokens, the model's context is 16: it sees the last 14, the first 184 are"));
  CHECK(text_of(j) == text_of(json_of({"--prompt", kText, "--tokens", "5", "--no-cache"})));
}

TEST_CASE("generate reports unsupported requests") {
  const auto error = [](std::vector<std::string> arguments, int code, const std::string& target = run().path()) {
    const ProcessResult r = generate(std::move(arguments), target);
    CHECK(r.code == code);
    CHECK(r.out.empty());
    return r.err;
  };
  CHECK(contains(error({"--prompt", "to be \xe2\x82\xac"}, 3), "[generate] --prompt: "));
  CHECK(contains(error({"--prompt", "to be \xe2\x82\xac"}, 3), "chars"));
  CHECK(contains(error({"--prompt", ""}, 2),
                 "--prompt: got an empty text, and chars of 27 ids has no mark of an end of text to begin with"));
  CHECK(contains(error({}, 2), "expected either --prompt TEXT or --ids 1,2,3"));
  CHECK(contains(error({"--prompt", "a", "--ids", "1"}, 2), "excludes"));
  CHECK(contains(error({"--ids", "1,99"}, 2), "id 99: the model has ids 0 .. 26"));
  CHECK(contains(error({"--ids", "1,-1"}, 2), "--ids: got -1"));
  CHECK(contains(error({"--prompt", "a", "--temperature", "-1"}, 2), "temperature: got -1"));
  CHECK(contains(error({"--prompt", "a", "--top-p", "0"}, 2), "top_p: got 0"));
  CHECK(contains(error({"--prompt", "a", "--stop", ""}, 2), "[stop] got an empty text"));
  CHECK(contains(error({"--prompt", "a", "--kv", "int8", "--no-cache"}, 2), "excludes"));
  CHECK(contains(error({"--prompt", "a", "--kv", "int4"}, 2), "int4"));
  const std::string digits = run().temp.file("digits");
  REQUIRE(
      cli({"train", source_path("configs/digits_linear_fp32.yaml"), "--out", digits, "train.stop=101 steps"}).code ==
      0);
  CHECK(contains(error({"--prompt", "a"}, 2, digits), "has no tokenizer: it was not trained on a text"));
  CHECK(contains(error({"--ids", "1"}, 2, digits), "not a language model: its input is fp32"));
}
