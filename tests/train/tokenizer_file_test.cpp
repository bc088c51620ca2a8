// The tokenizer inside checkpoints and model files: it comes back, and another one is an error that names both.
#include <fstream>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/tools/ptq.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kSmallText = R"yaml(version: 1
run: {name: small_text, seed: 7}
data:
  root: /nowhere
  tokenizer: chars
  train: {format: tokens, file: a.txt, context: 4, order: random}
  test: {format: tokens, file: a.txt, context: 4}
model:
  layers:
    - embedding: {num: 6, dim: 8, flat: false}
    - linear: {out: 6}
batch: {global: 2}
optim: {name: adamw, lr: 0.01}
train: {stop: 6 steps, eval: {every: 3 steps, batch: 3}}
checkpoint: {every: 2 steps}
)yaml";

class TextFolder {
 public:
  TextFolder() { write("abcdefabcdeffedcbaabcabcdefdefabcdefabcfedabcdeffabcde"); }
  void write(const std::string& text) const { std::ofstream(folder_.file("a.txt")) << text; }
  RunConfig config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), "data.root=" + folder_.path());
    return small_config(overrides, kSmallText);
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  TempDir folder_;
};

std::string without(std::string text, const std::string& part) {
  const size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.erase(at, part.size());
}

}  // namespace

TEST_CASE("Checkpoints and converted files hold the tokenizer of their model") {
  const KeepModes keep;
  const TextFolder text;
  const RunConfig config = text.config();
  const std::string folder = create_run_folder(config, text.file("run"));
  run_all(config, folder);
  for (const std::string name : {"/last.safetensors", "/best.safetensors"}) {
    const CheckpointHeader header = read_checkpoint_header(folder + name);
    const auto tokenizer = tokenizer_of(header, name);
    REQUIRE(tokenizer != nullptr);
    CHECK(tokenizer_difference(*tokenizer, *make_tokenizer("chars", "fedcba")).empty());
  }
  const std::string last = folder + "/last.safetensors";
  const CheckpointHeader header = read_checkpoint_header(last);
  const auto data = open_dataset(config, *config.data.test);
  const auto learner = load_evaluator(config, *data, last);
  learner->convert();
  save_converted(text.file("model.safetensors"), *learner, header);
  const CheckpointHeader converted = read_checkpoint_header(text.file("model.safetensors"));
  CHECK(converted.tokenizer == header.tokenizer);
  CHECK(tokenizer_of(converted, "model")->decode(std::vector<int32_t>{5, 0}) == "fa");
  // A run on numbers has none.
  run_all(small_config(), "");
  CheckpointHeader none;
  CHECK(tokenizer_of(none, "x") == nullptr);
  CHECK(tokenizer_text(nullptr).empty());
}

TEST_CASE("A run is resumed with the tokenizer that it began with, or not at all") {
  const KeepModes keep;
  const TextFolder text;
  const RunConfig config = text.config();
  const TrainOutcome uninterrupted = run_all(config);
  const std::string folder = create_run_folder(config, text.file("run"));
  run_part(config, folder, 3);
  CHECK(resume_run(folder).state_hash == uninterrupted.state_hash);
  const std::string other = create_run_folder(config, text.file("other"));
  run_part(config, other, 3);
  text.write("abcdegabcdeggedcbaabcabcdegdegabcdegabcgedabcdeggabcde");
  const auto resume = [&] { resume_run(other); };
  CHECK(error_code_of(resume) == 3);
  CHECK(contains(error_of(resume), other + "/last.safetensors and " + text.file("a.txt")));
  CHECK(
      contains(error_of(resume),
               "differ: chars of 6 ids, chars of 6 ids: id 5 is 'f', 'g'. A model reads the ids of the tokenizer that "
               "it was trained with."));
}

TEST_CASE("Training and test data of two tokenizers are an error that names both") {
  const TextFolder text;
  const auto put = [&](const std::string& name, const std::string& characters) {
    std::ofstream(text.file(name + ".tokens.json"))
        << Json{{"format_version", 1}, {"tokenizer", tokenizer_record(*make_tokenizer("chars", characters))}}.dump();
    std::vector<int32_t> head(256);
    head[0] = 20240520, head[1] = 1, head[2] = 12;
    std::vector<uint16_t> ids{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
    std::ofstream file(text.file(name + "_train_000000.bin"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(head.data()), 1024).write(reinterpret_cast<const char*>(ids.data()), 24);
  };
  put("one", "abcdef");
  put("two", "abcdeg");
  const auto config = [&](const std::string& test) {
    return text.config({"~data.tokenizer", "data.train.stored=shard", "data.train.file=one_train_*.bin",
                        "data.test.stored=shard", "data.test.file=" + test + "_train_000000.bin"});
  };
  CHECK(Trainer(config("one")).total_microbatches() == 6);
  CHECK(contains(error_of([&] { Trainer run(config("two")); }), "two_train_000000.bin) differ: chars of 6 ids"));
  const RunConfig stored = config("one");
  CHECK((parse_config(to_yaml(stored), "r.yaml") == stored));
}

TEST_CASE("A damaged tokenizer in a file is an error that names the file") {
  const auto error = [](const std::string& record) {
    CheckpointHeader header;
    header.tokenizer = record;
    const auto read = [&] { tokenizer_of(header, "m.safetensors"); };
    CHECK(error_code_of(read) == 3);
    CHECK(contains(error_of(read), "m.safetensors") == true);
    return error_of(read);
  };
  const std::string good = tokenizer_text(make_tokenizer("chars", "abc").get());
  CHECK(contains(error("{"), "'bitgrad.tokenizer' is not JSON"));
  CHECK(contains(error("{}"), "kind"));
  CHECK(contains(error(without(good, "abc")), "got no characters"));
  CHECK(contains(error(R"({"kind":"chars","vocabulary":4,"content":{"characters":"abc"}})"), "its record counts 4"));
  CHECK(contains(error(R"({"kind":"other","vocabulary":4,"content":{}})"), "kind 'other' is not known"));
  CHECK(contains(error(std::string(size_t{17} << 20, ' ')), "at most 16777216 are read"));
}

TEST_CASE("The key data.tokenizer names a kind or a file") {
  const TextFolder text;
  CHECK(text.config({"data.tokenizer=a/tokenizer.json"}).data.tokenizer == "a/tokenizer.json");
  const auto error = [&](const std::string& name) {
    return error_of([&] { text.config({"data.tokenizer=" + name}); });
  };
  CHECK(contains(error("byte"),
                 "data.tokenizer: got 'byte', expected one of chars, bytes, or a file with .json or "
                 ".model at its end; did you mean 'bytes'?"));
  CHECK(contains(error("gpt2.txt"), "got 'gpt2.txt'"));
}
