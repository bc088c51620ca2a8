// bench_generate with models of files: a run folder and its GGUF, in turns with programs that stand for llama.cpp.
#include <filesystem>
#include <fstream>

#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

ProcessResult run(const std::string& program, std::vector<std::string> arguments,
                  const Process::Environment& environment = {}) {
  arguments.insert(arguments.begin(), build_path("bin/") + program);
  return run_program(arguments, environment);
}

constexpr const char* kLlama = "{preset: llama, keys: {layers: 2, heads: 2, kv_heads: 1, dim: 32, ffn: 64}}";

// A model whose weights have a scale for each 32 codes: a llama of two blocks.
std::string trained(const TempDir& temp, const std::string& model = kLlama) {
  std::ofstream(temp.file("text.txt")) << std::string(600, 'a') + std::string(600, 'b');
  std::ofstream(temp.file("lm.yaml")) << R"yaml(version: 1
run: {name: lm, seed: 1}
data: {tokenizer: bytes, train: {format: tokens, file: text.txt, context: 24}}
model: )yaml" << model << R"yaml(
quant:
  rules:
    - {layers: "layers.2.*", weights: {dtype: int4, scheme: symmetric, granularity: group(32), scale_dtype: fp16},
       activations: {dtype: int8, scheme: absmax, granularity: token}}
batch: {global: 4}
optim: {name: adamw, lr: 1e-3}
train: {stop: 2 steps}
)yaml";
  std::string folder = temp.file("run");
  const ProcessResult r = run("bitgrad", {"train", temp.file("lm.yaml"), "--out", folder,
                                          "data.root=" + std::filesystem::path(temp.file("x")).parent_path().string()});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return folder;
}

}  // namespace

TEST_CASE("bench_generate measures models of files beside another program, and refuses options of the other kind") {
  TempDir temp;
  const std::string folder = trained(temp), gguf = temp.file("lm.gguf"), json = temp.file("r.json");
  const ProcessResult exported = run("bitgrad", {"export", folder, "--format", "gguf", "-o", gguf});
  INFO(exported.out << exported.err);
  REQUIRE(exported.code == 0);
  // It stands for Python with the client: 2 ms for the prompt, 50 s for the tokens.
  const std::string python = temp.file("python");
  std::ofstream(python)
      << "#!/bin/sh\n[ -f \"$2\" ] && echo '{\"engine\": \"other\", \"prompt_s\": 0.002, \"decode_s\": 50}'\n";
  // A program of its own: it prints what it was started with as its name.
  const std::string program = temp.file("native");
  std::ofstream(program) << "#!/bin/sh\necho \"{\\\"engine\\\": \\\"$2 $3 $4 $5\\\", \\\"prompt_s\\\": 0.001, "
                            "\\\"decode_s\\\": 7}\"\n";
  for (const std::string& file : {python, program})
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  const ProcessResult r = run("bench_generate",
                              {"--gguf", gguf, "--model", folder, "--rival", "llama.cpp," + program, "--prompt", "5",
                               "--tokens", "7", "--read-limit", "--repeat", "2", "--json", json},
                              {{"BITGRAD_PYTHON", python}});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json rows = Json::parse(slurp(json)).at("rows");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].at("who") == "bitgrad");
  CHECK(rows[0].at("tokens_per_s") > 0);
  CHECK(rows[1].at("x_rival") > 100);  // 7 tokens in 50 s are slow on any machine
  CHECK(rows[0].at("of_read_limit") > 0);
  // Codes of two blocks (qkv 64 rows, out 32, gate and up 128, down 32 of 64 columns), their scales in fp16, norms, and
  // the table once: the head is tied to it.
  const int64_t codes = int64_t{2} * ((64 + 32 + 128) * 32 + 32 * 64), floats = int64_t{5} * 32 + int64_t{256} * 32;
  CHECK(rows[0].at("weight_bytes") == codes / 2 + codes / 32 * 2 + floats * 4);
  // Keys and values of two blocks, 32 numbers of fp32 together, of 5 + (7 + 1) / 2 rows on the average.
  CHECK(rows[0].at("cache_bytes") == 2 * 32 * 4 * 9);
  CHECK(rows[0].at("of_read_limit_with_cache") > 0);
  CHECK(rows[1].at("who") == "other");
  CHECK(rows[1].at("prompt_tokens_per_s") == 2500.0);
  CHECK(rows[2].at("who") == "5 7 256 1");  // ids of the prompt, tokens, vocabulary, threads
  CHECK(rows[2].at("prompt_tokens_per_s") == 5000.0);
  CHECK(rows[2].at("tokens_per_s") == 1.0);
  CHECK(rows[2].at("x_rival") > 10);

  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"--rival", "llama.cpp"}, "--rival, --inputs, --kv, --read-limit and --prompt need --gguf or --model"},
      {{"--prompt", "9"}, "--rival, --inputs, --kv, --read-limit and --prompt need --gguf or --model"},
      {{"--kv", "bf16"}, "--rival, --inputs, --kv, --read-limit and --prompt need --gguf or --model"},
      {{"--inputs", "int8"}, "--rival, --inputs, --kv, --read-limit and --prompt need --gguf or --model"},
      {{"--model", folder, "--inputs", "float"}, "--inputs is for --gguf: the model of --model rounds its own way"},
      {{"--gguf", gguf, "--inputs", "int4"}, "unknown --inputs: got \"int4\", expected one of as_trained, float, int8"},
      {{"--model", folder, "--layers", "3"}, "are for models with random weights"},
      {{"--model", folder, "--rival", "llama.cpp"}, "--rival needs a file for it: --gguf FILE"},
      {{"--gguf", gguf, "--rival", "vllm"}, "--rival: got 'vllm', expected llama.cpp or the path of a program"},
      {{"--gguf", gguf, "--prompt", "5", "--tokens", "7", "--rival", "/no/program"}, "the rival failed: '/no/program'"},
      {{"--model", folder, "--read-limit", "--threads", "2"}, "--read-limit is measured with one thread"},
      {{"--model", folder}, "expected at most 24 together, the context of the model"}};
  for (const auto& [arguments, text] : refused) {
    const ProcessResult bad = run("bench_generate", arguments);
    INFO(bad.out << bad.err);
    CHECK(bad.code != 0);
    CHECK(bad.err.find(text) != std::string::npos);
  }
}

TEST_CASE("the read limit counts the keys that a layer with a window sees") {
  TempDir temp;
  const auto block = [](const std::string& window) {
    return "{residual: {body: [{linear: {out: 64, bias: false}}, {attention: {heads: 2, kv_heads: 1, rope: 10000" +
           window + "}}, {linear: {out: 32, bias: false}}]}}";
  };
  const std::string folder =
      trained(temp, "{layers: [{embedding: {num: 256, dim: 32, flat: false}}, {dropout: {p: 0}}, " + block("") + ", " +
                        block(", window: 8") + ", {head: {tie: layers.0}}]}");
  const std::string json = temp.file("r.json");
  // Tokens at positions 5 to 11 see 6 to 12 keys, or at most 8. Keys and values are 32 numbers: of fp32, of bf16, and
  // of int8 with a scale of fp16 each for the key and the value.
  const std::pair<const char*, int64_t> bytes_of[] = {{"fp32", 32 * 4}, {"bf16", 32 * 2}, {"int8", 32 + 2 * 2}};
  for (const auto& [kv, bytes] : bytes_of) {
    const ProcessResult r = run("bench_generate", {"--model", folder, "--prompt", "5", "--tokens", "7", "--read-limit",
                                                   "--repeat", "1", "--kv", kv, "--json", json});
    INFO(kv << r.out << r.err);
    REQUIRE(r.code == 0);
    CHECK(Json::parse(slurp(json)).at("rows")[0].at("cache_bytes") == (63 + 53) * bytes / 7);
  }
}
