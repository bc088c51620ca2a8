// bitgrad export and bitgrad import: a small model goes out as GGUF and as a folder of Hugging Face, and comes back.
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/io/gguf.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// A run of two steps; its weights have the values that they began with, nearly.
std::string small_run(const TempDir& temp, const std::string& name, const std::string& config) {
  std::filesystem::create_directories(temp.file("text"));
  std::ofstream out(temp.file("text/tinyshakespeare.txt"));
  for (int i = 0; i < 60; ++i) out << "The " << i << " arrows of outrageous fortune: a sea of troubles.\n";
  out.close();
  const ProcessResult run =
      cli({"train", source_path("configs/") + config, "data.root=" + temp.path(), "data.train.context=16",
           "data.test.context=16", "train.stop=2 steps", "schedule.warmup=1 steps", "train.eval.every=2 steps",
           "model.keys={layers: 2, heads: 2, dim: 64}", "--out", temp.file(name)});
  INFO(run.err);
  REQUIRE(run.code == 0);
  return temp.file(name);
}

Json greedy(const std::string& model) {
  const ProcessResult made =
      cli({"generate", model, "--ids", "3,1,4", "--tokens", "12", "--temperature", "0", "--json"});
  INFO(made.err);
  REQUIRE(made.code == 0);
  return Json::parse(made.out).at("samples")[0].at("ids");
}

}  // namespace

TEST_CASE("A model goes out as GGUF and comes back with its codes") {
  const TempDir temp;
  const std::string run = small_run(temp, "run", "shakespeare_gpt_cpu_int4.yaml"), gguf = temp.file("m.gguf");
  const ProcessResult dry = cli({"export", run, "-o", gguf, "--dry-run", "--json"});
  REQUIRE(dry.code == 0);
  CHECK_FALSE(std::filesystem::exists(gguf));
  int codes = 0;
  const Json report = Json::parse(dry.out);
  CHECK(report.at("family") == "gpt2");
  for (const Json& tensor : report.at("tensors")) {
    CHECK((tensor.at("fate") == "exact" || tensor.at("fate") == "zeros"));
    codes += tensor.at("type") == "Q4_0" ? 1 : 0;
  }
  CHECK(codes == 8);  // four weights in each of two blocks
  REQUIRE(cli({"export", run, "-o", gguf}).code == 0);
  CHECK(cli({"export", run, "-o", gguf}).code != 0);  // it exists
  const ProcessResult forced = cli({"export", run, "-o", gguf, "--force", "--json"});
  REQUIRE(forced.code == 0);
  Json written = Json::parse(forced.out);  // one object and nothing else
  CHECK(report.at("out").is_null());
  CHECK(written.at("out") == gguf);
  CHECK(written.at("tensors") == report.at("tensors"));
  CHECK(written.at("format") == "gguf");
  for (const Json& tensor : written.at("tensors"))
    if (tensor.at("name") == "blk.0.attn_qkv.weight") {
      CHECK(tensor.at("parameter") == "layers.3.0.0.0.body.1.weight");
      CHECK(tensor.at("shape") == Json{192, 64});
      CHECK(tensor.at("error") == 0);
      CHECK(tensor.at("reason") == "");
    }
  const ProcessResult wrong = cli({"export", run, "-o", gguf, "--format", "hf", "--force"});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "--format"));
  const GgufFile file = GgufFile::read(gguf);
  CHECK(file.text("tokenizer.ggml.model") == "rwkv");  // characters: no merges, and no id that ends a text
  CHECK(file.texts("tokenizer.ggml.tokens").at(0) == "\\x0a");
  CHECK(file.texts("tokenizer.ggml.tokens").at(1) == " ");
  for (const char* key : {"merges", "bos_token_id", "eos_token_id", "pre"})
    CHECK(file.find(concat("tokenizer.ggml.", key)) == nullptr);
  const ProcessResult blocks = cli({"import", gguf, "-o", temp.file("blocks.safetensors"), "--inputs", "int8_block"});
  REQUIRE(blocks.code == 0);
  CHECK(contains(blocks.out, "weights: F32 as fp32, a table of ids: layers.0\n"));
  CHECK(contains(blocks.out, "weights: Q4_0 as int4 per group(32), inputs int8 per group(32): "));
  CHECK(contains(cli({"inspect", temp.file("blocks.safetensors")}).out, "int8 absmax group(32)"));
  const ProcessResult unknown = cli({"import", gguf, "-o", temp.file("no.safetensors"), "--inputs", "int4"});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "--inputs: int4 not in {float,int8,int8_block}"));
  const ProcessResult both = cli({"import", gguf, "-o", temp.file("no.safetensors"), "--inputs", "int8", "--config",
                                  source_path("configs/shakespeare_gpt_cpu.yaml")});
  CHECK(both.code == 2);
  CHECK(contains(both.err, "--inputs is for models without --config"));
  REQUIRE(cli({"import", gguf, "-o", temp.file("back.safetensors")}).code == 0);
  const ProcessResult inspected = cli({"inspect", temp.file("back.safetensors")});
  CHECK(contains(inspected.out, "int4"));
  std::ofstream(temp.file("broken.gguf")) << slurp(gguf).substr(0, 3000);
  const ProcessResult broken = cli({"import", temp.file("broken.gguf"), "-o", temp.file("no.safetensors")});
  CHECK(broken.code == 3);
  CHECK_FALSE(std::filesystem::exists(temp.file("no.safetensors")));
}

TEST_CASE("A model goes out as a folder of Hugging Face and comes back with its tokens") {
  const TempDir temp;
  const std::string run = small_run(temp, "run", "shakespeare_gpt_cpu.yaml"), folder = temp.file("folder");
  const ProcessResult exported = cli({"export", run, "-o", folder, "--json"});
  REQUIRE(exported.code == 0);
  const Json report = Json::parse(exported.out);
  CHECK(report.at("format") == "hf");
  CHECK(report.at("out") == folder);
  for (const Json& tensor : report.at("tensors"))
    CHECK((tensor.at("fate") == "zeros") == tensor.at("parameter").is_null());
  CHECK(std::filesystem::exists(folder + "/config.json"));
  CHECK(std::filesystem::exists(folder + "/model.safetensors"));
  // Nothing is replaced that was not meant: a folder that exists, the file that is read, a run.
  const std::string before = slurp(folder + "/model.safetensors");
  const auto refused = [&](const std::vector<std::string>& words, const std::string& text) {
    std::vector<std::string> arguments{"export"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const ProcessResult r = cli(arguments);
    INFO(r.out << r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, text));
  };
  refused({run, "-o", folder}, "'" + folder + "' exists. Name another folder, or overwrite it with --force");
  REQUIRE(cli({"convert", run, "-o", temp.file("plain.safetensors")}).code == 0);
  std::filesystem::create_directory(temp.file("own"));
  std::filesystem::rename(temp.file("plain.safetensors"), temp.file("own/model.safetensors"));
  const std::string own = slurp(temp.file("own/model.safetensors"));
  refused({temp.file("own/model.safetensors"), "-o", temp.file("own"), "--format", "hf", "--force"},
          "is the input file. Name another folder");
  refused({run, "-o", run, "--force"}, "is the folder of a run. Name another one");
  CHECK(slurp(folder + "/model.safetensors") == before);
  CHECK(slurp(temp.file("own/model.safetensors")) == own);
  CHECK(cli({"export", run, "-o", folder, "--force"}).code == 0);
  const ProcessResult back = cli({"import", folder, "-o", temp.file("back.safetensors")});
  INFO(back.err);
  REQUIRE(back.code == 0);
  CHECK(greedy(temp.file("back.safetensors")) == greedy(run));
  const ProcessResult none = cli({"import", temp.file("text"), "-o", temp.file("no.safetensors")});
  CHECK(none.code == 3);  // a folder of no model
  CHECK(contains(none.err, "config.json"));
  const ProcessResult absent = cli({"import", temp.file("absent"), "-o", temp.file("no.safetensors")});
  CHECK(absent.code == 3);
  CHECK(contains(absent.err, "no such file or folder"));
  CHECK(contains(cli({"eval", temp.file("back.safetensors")}).err, "context: 64}' with the data.tokenizer"));
}
