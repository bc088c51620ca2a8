// bitgrad inspect and bitgrad diff as their users run them.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kConfig = R"yaml(version: 1
run: {name: small, seed: 2}
data:
  train: {format: digits, size: 60}
  test: {format: digits, size: 40}
model:
  layers:
    - linear: {out: 20}
    - batch_norm: {}
    - relu: {}
    - linear: {out: 16}
    - relu: {}
    - linear: {out: 10}
quant: {recipe: 8da4w, last: none}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
checkpoint: {every: 1 epochs}
)yaml";

// A run folder; what it printed on failure.
std::string trained(const TempDir& temp, const std::string& name, const std::vector<std::string>& overrides = {}) {
  std::ofstream(temp.file(name + ".yaml")) << kConfig;
  std::vector<std::string> arguments{"train", temp.file(name + ".yaml"), "--out", temp.file(name), "-q"};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  const ProcessResult r = cli(arguments);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return temp.file(name);
}

// What `bitgrad convert` writes.
std::string converted(const TempDir& temp, const std::string& run) {
  const std::string checkpoint = run_folder_checkpoint(run);
  std::string out = temp.file("model.safetensors");
  const RunConfig config = run_folder_config(run);
  const auto data = open_dataset(config, *config.data.test);
  const auto learner = load_evaluator(config, *data, checkpoint);
  learner->convert();
  save_model(out, learner->model(), read_checkpoint_header(checkpoint));
  return out;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.find_last_of('\n', end);
  return text.substr(begin + 1, end - begin);
}

void put32(std::ofstream& out, uint32_t x) {
  for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>(x >> shift));
}

// 30 images of 4 x 4 in the idx format.
void write_images(const TempDir& temp) {
  std::ofstream images(temp.file("images")), labels(temp.file("labels"));
  for (const uint32_t word : {0x803u, 30u, 4u, 4u}) put32(images, word);
  for (int i = 0; i < 30 * 16; ++i) images.put(static_cast<char>(i * 37 % 251));
  for (const uint32_t word : {0x801u, 30u}) put32(labels, word);
  for (int i = 0; i < 30; ++i) labels.put(static_cast<char>(i % 10));
}

}  // namespace

TEST_CASE("inspect prints how the layers are held and what their codes are used for") {
  TempDir temp;
  const std::string run = trained(temp, "run");
  const ProcessResult r = cli({"inspect", run});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "checkpoint " + run + "/last.safetensors: small, seed 2, step 12, epoch 2, best "));
  CHECK(contains(r.out, "int4 absmax group(32)"));
  CHECK(contains(r.out, "int8 affine token"));
  CHECK(contains(r.out, "15 of 16"));  // absmax has no -8
  CHECK(contains(r.out, "codes of layers.0, smallest first: "));
  CHECK_FALSE(contains(r.out, "codes of layers.5"));

  const ProcessResult one = cli({"inspect", run + "/best.safetensors", "--layers", "layers.3", "--json"});
  REQUIRE(one.code == 0);
  const Json j = Json::parse(one.out);
  CHECK(j.at("kind") == "checkpoint");
  CHECK(j.at("step") == 12);
  REQUIRE(j.at("layers").size() == 1);
  const Json& layer = j.at("layers")[0];
  CHECK(layer.at("layer") == "layers.3");
  CHECK(layer.at("shape") == Json::array({16, 20}));
  const Json& s = layer.at("statistics");
  CHECK(s.at("elements") == 320);
  int64_t sum = 0;
  for (const Json& count : s.at("histogram")) sum += count.get<int64_t>();
  CHECK(sum == 320);
  CHECK(s.at("sqnr_db") > 15);
  CHECK(s.at("pass") > 0.9);

  const ProcessResult all = cli({"inspect", run, "--json"});
  CHECK(Json::parse(all.out).at("layers")[2].at("statistics").is_null());  // fp32
}

TEST_CASE("inspect reads a model file, which has no masters") {
  TempDir temp;
  const std::string model = converted(temp, trained(temp, "run"));
  const ProcessResult r = cli({"inspect", model, "--json"});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json j = Json::parse(r.out);
  CHECK(j.at("kind") == "model");
  CHECK(j.at("layers")[0].at("statistics").at("sqnr_db").is_null());
  CHECK(j.at("layers")[0].at("statistics").at("entropy") > 2);
}

TEST_CASE("inspect needs no data, diff does") {
  TempDir temp;
  write_images(temp);
  const std::string idx = "{format: idx, images: " + temp.file("images") + ", labels: " + temp.file("labels") + "}";
  const std::string run = trained(temp, "idx",
                                  {"data.train=" + idx, "data.test=" + idx, "train.stop=3 epochs",
                                   "quant.phases=[{from: 0 steps, quantization: off}, {from: 1 epochs}]"});
  std::filesystem::remove(temp.file("images"));
  const ProcessResult r = cli({"inspect", run, "--json"});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(Json::parse(r.out).at("phase") == 1);
  CHECK(Json::parse(r.out).at("layers")[0].at("shape") == Json::array({20, 16}));
  const ProcessResult d = cli({"diff", run, run});
  CHECK(d.code == 3);
  CHECK(contains(d.err, temp.file("images")));

  const ProcessResult other = cli({"diff", run, trained(temp, "digits")});
  CHECK(other.code == 2);
  CHECK(contains(other.err, "[diff] the inputs differ"));
  CHECK(contains(other.err, "has 16 values"));
  CHECK(contains(other.err, "784"));
}

TEST_CASE("models that begin with an embedding are inspected without their text, and compared on ids") {
  TempDir temp;
  std::string text;
  for (int i = 0; i < 80; ++i) text += static_cast<char>('a' + i * i % 11 % 10);
  std::ofstream(temp.file("text")) << text;
  std::ofstream(temp.file("words.yaml")) << R"yaml(version: 1
run: {name: words}
data:
  train: {format: text, file: text, context: 3, test_fraction: 0.3}
  test: {format: text, file: text, context: 3, test_fraction: 0.3}
model:
  layers:
    - embedding: {num: 40, dim: 5}
    - linear: {out: 16}
    - relu: {}
    - linear: {out: 6}
quant: {recipe: int4wo_symmetric}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.01}
train: {stop: 1 epochs}
)yaml";
  const ProcessResult t =
      cli({"train", temp.file("words.yaml"), "--out", temp.file("run"), "-q", "data.root=" + temp.path()});
  INFO(t.out << t.err);
  REQUIRE(t.code == 0);
  const ProcessResult d = cli({"diff", temp.file("run"), temp.file("run/best.safetensors"), "--samples", "4"});
  INFO(d.out << d.err);
  REQUIRE(d.code == 0);
  CHECK(last_line(d.out) == "equal bits: yes");
  CHECK(contains(d.out, "layers.0  [4,15] fp32"));
  std::filesystem::remove(temp.file("text"));
  const ProcessResult r = cli({"inspect", temp.file("run"), "--json"});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json layers = Json::parse(r.out).at("layers");
  CHECK(std::any_of(layers.begin(), layers.end(), [](const Json& layer) {
    return layer.at("layer") == "layers.1" && layer.at("shape") == Json::array({16, 15});
  }));
}

TEST_CASE("a prepared model and its converted one have equal bits, two epochs have not") {
  TempDir temp;
  const std::string run = trained(temp, "run"), model = converted(temp, run);
  const ProcessResult r = cli({"diff", run, model, "--samples", "25"});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(last_line(r.out) == "equal bits: yes");
  const Json j = Json::parse(cli({"diff", run, model, "--json", "--samples", "25"}).out);
  CHECK(j.at("equal_bits") == true);
  CHECK(j.at("samples") == 25);
  CHECK(j.at("a").at("kind") == "checkpoint");
  CHECK(j.at("b").at("kind") == "model");
  CHECK(j.at("output").at("max_abs_difference") == 0);
  CHECK(j.at("parameters").size() == 8);  // three weights and biases, gamma and beta

  const std::string longer = trained(temp, "longer", {"train.stop=4 epochs"});
  const ProcessResult d = cli({"diff", run, longer, "--json"});
  REQUIRE(d.code == 0);
  const Json k = Json::parse(d.out);
  CHECK(k.at("equal_bits") == false);
  CHECK(k.at("samples") == 40);  // all of data.test
  CHECK(k.at("output").at("max_abs_difference") > 0);
  CHECK(k.at("parameters")[0].at("codes_differ") > 0);

  const std::string plain = trained(temp, "fp32", {"quant.recipe=none"});
  const ProcessResult f = cli({"diff", run, plain});
  REQUIRE(f.code == 0);
  CHECK(contains(f.out, "only in A: layers.0.input"));
  CHECK(last_line(f.out) == "equal bits: no");
}

TEST_CASE("bad files and arguments are reported with the exit code of their kind") {
  TempDir temp;
  const std::string run = trained(temp, "run"), file = run + "/last.safetensors";
  CHECK(cli({"inspect"}).code == 2);
  CHECK(cli({"diff", run}).code == 2);
  const ProcessResult glob = cli({"inspect", run, "--layers", "layers.[9]"});
  CHECK(glob.code == 2);
  CHECK(contains(glob.err, "layers.3"));
  CHECK(cli({"diff", run, run, "--samples", "0"}).code == 2);
  const std::string bytes = slurp(file);
  std::ofstream(temp.file("cut")) << bytes.substr(0, bytes.size() / 2);
  std::string flipped = bytes;
  flipped[bytes.size() - 100] = static_cast<char>(flipped[bytes.size() - 100] ^ 1);
  std::ofstream(temp.file("flipped")) << flipped;
  std::ofstream(temp.file("text")) << "hello";
  for (const std::string& bad :
       {temp.file("cut"), temp.file("flipped"), temp.file("text"), temp.file("absent"), temp.path()}) {
    INFO(bad);
    const ProcessResult r = cli({"inspect", bad});
    CHECK(r.code == 3);
    CHECK(contains(r.err, bad));
    CHECK(cli({"diff", run, bad}).code == 3);
    CHECK(cli({"diff", bad, run}).code == 3);
  }
}
