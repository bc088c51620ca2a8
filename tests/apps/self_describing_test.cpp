// Files describe themselves: the model's record in checkpoints and converted files, files that no run wrote, and where
// data are looked for.
#include <filesystem>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/bitgrad.h"
#include "bitgrad/checkpoint/model_record.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kBranched = R"yaml(version: 1
run: {name: branched, bits: strict}
data:
  train: {format: digits, size: 120}
  test: {format: digits, size: 60}
model:
  layers:
    - linear: {out: 24, weights: {dtype: fp32}}
    - residual: {body: [{quantize: {}}, {linear: {out: 24}}, {batch_norm: {}}, {relu: {}}]}
    - branches: {join: concat, layers: [[], [{quantize: {}}, {linear: {out: 8}}]]}
    - repeat: {times: 2, layers: [{quantize: {}}, {linear: {out: 16, bias: false}}]}
    - linear: {out: 10}
quant:
  weights: {dtype: int4, scheme: lsq, granularity: channel}
  activations: {dtype: int8, scheme: lsq}
  rules: [{layers: layers.4, recipe: 8da4w}]
batch: {global: 20}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
)yaml";

std::string trained(const TempDir& temp, const std::string& yaml, const std::string& name,
                    const std::vector<std::string>& more = {}) {
  write_file_atomically(temp.file(name + ".yaml"), yaml);
  std::vector<std::string> arguments{"train", temp.file(name + ".yaml"), "--out", temp.file(name)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProcessResult r = cli(arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return temp.file(name);
}
double loss_of(std::vector<std::string> arguments, const Process::Environment& environment = {}) {
  arguments.insert(arguments.begin(), "eval");
  arguments.emplace_back("--json");
  const ProcessResult r = cli(arguments, environment);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return Json::parse(r.out).at("loss").get<double>();
}

// Digits by a program of its own.
std::string library_made(const TempDir& temp) {
  LayerSpec first{.kind = "linear", .attributes = {{"out", 20}}}, relu{.kind = "relu"},
      last{.kind = "linear", .attributes = {{"out", 10}}};
  Learner learner(
      make_sequential({first, relu, last}, 784), find_loss("softmax_cross_entropy"), {.name = "adam"}, {},
      [](int64_t) { return 0.01f; }, /*seed=*/4);
  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  learner.set_phases({{0, spec, {}}});
  learner.plan({.input = {.sample = {784}}, .outputs = 10, .train_samples = 20, .eval_samples = 20});
  DatasetSpec digits;
  digits.format = "digits";
  digits.size = 100;
  const auto data = make_dataset(digits);
  Loader loader(*data, {.micro = 20, .seed = 1, .end_epoch = 2});
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    learner.microbatch(x, {batch.labels, static_cast<size_t>(batch.size)});
  }
  std::string path = temp.file("own.safetensors");
  save_checkpoint(path, learner, {}, "");
  return path;
}

}  // namespace

TEST_CASE("checkpoints and converted files describe their model, and contain no path of the machine") {
  TempDir temp;
  const std::string folder = trained(temp, kBranched, "run"), model = temp.file("model.safetensors");
  REQUIRE(cli({"convert", folder, "-o", model}).code == 0);
  for (const std::string& file : {folder + "/last.safetensors", model}) {
    INFO(file);
    const SafetensorsFile read = SafetensorsFile::read(file);
    for (const auto& [key, text] : read.metadata()) {
      INFO(key);
      CHECK_FALSE(contains(text, temp.file("")));
      CHECK_FALSE(contains(text, "root:"));
    }
    const auto record = read_model_record(file);
    REQUIRE(record.has_value());
    CHECK(record->model.input.sample == Shape{784});
    REQUIRE(record->model.layers.size() == 5);
    CHECK(record->model.layers[2].lists.at(1).layers.at(1).attributes.integer("out") == 8);
    CHECK(to_text(parse_model_record(to_text(*record))) == to_text(*record));
    bool found = false;
    for (const ModelRecord::Slot& slot : record->slots)
      if (slot.layer == "layers.4") found = slot.quant.recipe == "8da4w" && slot.quant.weight.has_value();
    CHECK(found);
    // Without a configuration: the same loss.
    const auto learner = load_evaluator(file, find_loss("softmax_cross_entropy"), 20);
    DatasetSpec digits;
    digits.format = "digits";
    digits.split = "test";
    digits.size = 60;
    const BitsMode before = bits_mode();
    set_bits_mode(BitsMode::kStrict);
    CHECK(evaluate(*learner, *make_dataset(digits), 20).loss == loss_of({file}));
    set_bits_mode(before);
  }
}

TEST_CASE("a run with bf16 values is evaluated, resumed, converted and opened with them") {
  TempDir temp;
  const std::string folder = trained(temp, kBranched, "run", {"model.values=bf16"});
  const std::string model = temp.file("model.safetensors");
  REQUIRE(cli({"convert", folder, "-o", model}).code == 0);
  for (const std::string& file : {folder + "/last.safetensors", model}) {
    const auto record = read_model_record(file);
    REQUIRE(record.has_value());
    CHECK(record->model.input.values == dtypes::bf16);
  }
  const double loss = loss_of({folder});
  CHECK(loss_of({model}) == loss);
  CHECK(loss_of({folder + "/last.safetensors"}) == loss);
  const ProcessResult more = cli({"train", "--resume", folder});
  INFO(more.out << more.err);
  CHECK(more.code == 0);
  CHECK(read_model_record(folder + "/last.safetensors")->model.input.values == dtypes::bf16);
}

TEST_CASE("a file that no run wrote opens with inspect, eval, diff and convert") {
  TempDir temp;
  const std::string file = library_made(temp);
  const ProcessResult inspected = cli({"inspect", file});
  INFO(inspected.err);
  REQUIRE(inspected.code == 0);
  CHECK(contains(inspected.out, "layers.0"));
  CHECK(contains(inspected.out, "w8a8"));
  const std::string data = "data.test={format: digits, size: 50}";
  const double loss = loss_of({file, data});
  CHECK(std::isfinite(loss));
  const ProcessResult none = cli({"eval", file});
  CHECK(none.code == 2);
  CHECK(contains(none.err,
                 "was not written by a run, so it names no data set: pass one, such as 'data.test={format: digits"));
  const std::string model = temp.file("model.safetensors");
  const ProcessResult converted = cli({"convert", file, "-o", model, "--check", data});
  INFO(converted.out << converted.err);
  REQUIRE(converted.code == 0);
  CHECK(contains(converted.out, "logits equal bit for bit"));
  CHECK(loss_of({model, data}) == loss);
  const ProcessResult diff = cli({"diff", file, model, data});
  INFO(diff.err);
  CHECK(diff.code == 0);
  CHECK(contains(diff.out, "equal bits: yes"));
}

TEST_CASE("data are found by --data, data.root, BITGRAD_DATA, then where the run had them") {
  TempDir temp;
  const std::string yaml =
      "version: 1\ndata:\n  root: here\n  train: {format: text, file: t.txt, context: 3}\n  test: {format: text, file: "
      "t.txt, context: 3}\nmodel:\n  layers:\n    - embedding: {num: 17, dim: 4}\n    - linear: {out: 17}\nbatch: "
      "{global: 10}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 10 steps}\ncheckpoint: {every: 5 steps}\n";
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + i * i % 7 + i % 13);
  std::filesystem::create_directories(temp.file("here"));
  write_file_atomically(temp.file("here/t.txt"), text);
  const std::string folder = trained(temp, yaml, "run");
  const double loss = loss_of({folder});
  std::filesystem::rename(temp.file("here"), temp.file("there it is"));
  const ProcessResult gone = cli({"eval", folder});
  CHECK(gone.code == 3);
  CHECK(contains(gone.err, "t.txt"));
  CHECK(loss_of({folder, "--data", temp.file("there it is")}) == loss);
  CHECK(loss_of({folder, "data.root=" + temp.file("there it is")}) == loss);
  CHECK(loss_of({folder}, {{"BITGRAD_DATA", temp.file("there it is")}}) == loss);
  CHECK(loss_of({folder, "--data", temp.file("there it is")}, {{"BITGRAD_DATA", "/nowhere"}}) == loss);
  const std::string model = temp.file("model.safetensors");
  REQUIRE(cli({"convert", folder, "-o", model, "--check", "--data", temp.file("there it is")}).code == 0);
  CHECK(loss_of({model, "--data", temp.file("there it is")}) == loss);
  const ProcessResult resumed = cli({"train", "--resume", folder, "--data", temp.file("there it is")});
  INFO(resumed.out << resumed.err);
  CHECK(resumed.code == 0);
  CHECK(cli({"train", "--resume", folder}, {{"BITGRAD_DATA", temp.file("there it is")}}).code == 0);
}

TEST_CASE("a forged record of a model is refused before memory is asked for, and so is a file without one") {
  TempDir temp;
  const std::string file = library_made(temp), forged = temp.file("forged.safetensors");
  const std::string good = to_text(*read_model_record(file));
  const auto forge = [&](const std::string& record) {
    const SafetensorsFile read = SafetensorsFile::read(file);
    std::vector<SafetensorsItem> items;
    for (const SafetensorsEntry& e : read.entries())
      items.push_back({e.name, e.dtype, e.shape, read.data(e.name), e.bytes});
    auto metadata = read.metadata();
    metadata["bitgrad.model"] = record;
    if (record.empty()) metadata.erase("bitgrad.model");
    metadata.erase("bitgrad.crc32c");
    metadata.erase("bitgrad.header_crc32c");
    write_safetensors(forged, items, {metadata.begin(), metadata.end()});
  };
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    forge(text);
    return error_of([&] { load_evaluator(forged, find_loss("softmax_cross_entropy")); });
  };
  forge("");
  CHECK(contains(error_of([&] { open_file(forged); }),
                 "has no record of its model: only the program that wrote it can open it"));
  CHECK(contains(refused("\"out\":20", "\"out\":1048576"), "its model has parameter 'layers.0.weight' [1048576,784]"));
  CHECK(contains(refused("\"out\":20", "\"out\":-3"), "out: got -3, expected a whole number in [1, 1048576]"));
  CHECK(contains(refused("\"kind\":\"relu\"", "\"kind\":\"rleu\""), "unknown layer 'rleu'. Did you mean 'relu'?"));
  CHECK(contains(refused("[784]", "[1e3]"), "sample"));
  CHECK(contains(refused("[784]", "[784,1,1,1,1,1,1,1,1]"), "sample: got 9 axes, expected at most 8"));
  CHECK(contains(refused("layers.0", "layers.7"), "has a slot 'layers.7', its model has none"));
  CHECK(contains(refused("\"scheme\":\"", "\"scheme\":\"x"), "x"));
  CHECK(contains(refused("{", "["), "is not JSON"));
}
