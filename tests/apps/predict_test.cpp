// bitgrad predict as its users run it.
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "apps/cli.h"
#include "apps/pictures.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/infer/predictor.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/npy_bytes.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

constexpr const char* kNet = R"yaml(version: 1
run: {name: net, seed: 2}
data:
  train: {format: digits, size: 100}
  affine: [2, -1]
model:
  layers:
    - linear: {out: 10}
batch: {global: 20, micro: 20}
optim: {name: adam, lr: 0.005}
train: {stop: 1 epochs}
)yaml";

std::string train(const TempDir& temp, const std::string& text, const std::vector<std::string>& overrides = {}) {
  std::ofstream(temp.file("net.yaml")) << text;
  std::vector<std::string> arguments{"train", temp.file("net.yaml"), "-q", "--out", temp.file("run")};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  const ProcessResult r = cli(arguments);
  INFO(r.err);
  REQUIRE(r.code == 0);
  return temp.file("run");
}

void write(const std::string& path, const NpyBytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

// Three samples of 28 x 28 bytes.
NpyBytes pixels() {
  NpyBytes out(3 * 784);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i * 37 % 251);
  return out;
}
std::string csv_of(const NpyBytes& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) text += std::to_string(bytes[i]) + (i % 784 == 783 ? "\n" : ",");
  return text;
}

ProcessResult with_input(const std::string& path, const std::vector<std::string>& arguments) {
  ProcessStreams streams;
  streams.files = {{0, path}};
  return cli(arguments, {}, streams);
}
std::string error(const std::vector<std::string>& arguments, int code) {
  const ProcessResult r = cli(arguments);
  CHECK(r.code == code);
  CHECK(r.out.empty());
  return r.err;
}

}  // namespace

TEST_CASE("predict gives classes in the order of the samples, the same from npy, idx, csv and standard input") {
  const TempDir temp;
  const std::string run = train(temp, kNet);
  write(temp.file("x.npy"), npy("|u1", "(3, 28, 28)", pixels()));
  std::ofstream(temp.file("x.csv")) << csv_of(pixels());
  const ProcessResult r = cli({"predict", run, temp.file("x.npy"), "--json", "--top", "3"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json j = Json::parse(r.out);
  CHECK(j.at("task") == "classes");
  CHECK(j.at("scores") == "probability");
  const Json& predictions = j.at("predictions");
  REQUIRE(predictions.size() == 3);
  // By the library.
  const auto model = bitgrad::open_model(run);
  const NpyBytes bytes = pixels();
  const bitgrad::Tensor y = model->predict({"x", bitgrad::StoredAs::kUint8, {784}, 3, bytes.data()});
  for (int64_t i = 0; i < 3; ++i) {
    const std::vector<bitgrad::Ranked> top = model->top(y, i, 3);
    const Json& p = predictions.at(static_cast<size_t>(i));
    CHECK(p.at("class").get<int64_t>() == top[0].index);
    REQUIRE(p.at("top").size() == 3);
    for (size_t k = 0; k < 3; ++k) {
      CHECK(p.at("top").at(k).at(size_t{0}).get<int64_t>() == top[k].index);
      CHECK(p.at("top").at(k).at(size_t{1}).get<double>() == Approx(top[k].score).epsilon(1e-6));
    }
  }
  CHECK(cli({"predict", run, temp.file("x.csv"), "--pixels", "--json", "--top", "3"}).out == r.out);
  CHECK(with_input(temp.file("x.npy"), {"predict", run, "-", "--format", "npy", "--json", "--top", "3"}).out == r.out);
  const ProcessResult twice = cli({"predict", run, temp.file("x.npy"), temp.file("x.csv"), "--pixels", "--csv"});
  CHECK(twice.out.starts_with("input,sample,class,probability\n" + temp.file("x.npy") + ",0,"));
  CHECK(std::count(twice.out.begin(), twice.out.end(), '\n') == 7);
  // A table, with names of classes.
  std::ofstream(temp.file("names.txt")) << "n0\nn1\nn2\nn3\nn4\nn5\nn6\nn7\nn8\nlast, one\n";
  const ProcessResult table = cli({"predict", run, temp.file("x.npy"), "--classes", temp.file("names.txt")});
  CHECK(contains(table.out, "name"));
  CHECK(std::count(table.out.begin(), table.out.end(), '\n') == 4);
}

TEST_CASE("predict gives numbers of a regression, and several labels") {
  const TempDir temp;
  const NpyBytes x = npy("<f4", "(4, 3)", bytes_of<float>({0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}));
  write(temp.file("x.npy"), x);
  write(temp.file("t.npy"), npy("<f4", "(4, 2)", bytes_of<float>({0, 1, 1, 0, 0, 1, 1, 1})));
  const std::string text = "version: 1\nrun: {name: net}\ndata:\n  train: {format: npy, images: " + temp.file("x.npy") +
                           ", targets: " + temp.file("t.npy") +
                           "}\nmodel: {layers: [{linear: {out: 2}}]}\nbatch: {global: 4, micro: 4}\n"
                           "optim: {name: sgd, lr: 0.1}\ntrain: {stop: 2 epochs}\nloss: ";
  SECTION("values") {
    const std::string run = train(temp, text + "mean_squared_error\n");
    const ProcessResult r = cli({"predict", run, temp.file("x.npy"), "--json"});
    const Json j = Json::parse(r.out);
    CHECK(j.at("task") == "values");
    const auto model = bitgrad::open_model(run);
    const std::vector<float> y =
        model->predict(bitgrad::Tensor::from({0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}, {4, 3})).to_vector();
    for (size_t i = 0; i < 8; ++i)
      CHECK(j.at("predictions").at(i / 2).at("values").at(i % 2).get<double>() == static_cast<double>(y[i]));
    CHECK(cli({"predict", run, temp.file("x.npy"), "--csv"}).out.starts_with("input,sample,value_0,value_1\n"));
  }
  SECTION("labels") {
    const std::string run = train(temp, text + "sigmoid_cross_entropy\n");
    const ProcessResult r = cli({"predict", run, temp.file("x.npy"), "--json", "--top", "2"});
    const Json j = Json::parse(r.out);
    CHECK(j.at("task") == "labels");
    for (const Json& p : j.at("predictions")) {
      size_t above = 0;
      for (const Json& entry : p.at("top")) above += entry.at(size_t{1}).get<double>() >= 0.5 ? 1 : 0;
      CHECK(p.at("labels").size() == above);
    }
  }
}

TEST_CASE("predict names what it cannot read") {
  const TempDir temp;
  const std::string run = train(temp, kNet);
  const auto of = [&](const std::string& file) { return error({"predict", run, temp.file(file)}, 3); };
  CHECK(contains(of("none.npy"), temp.file("none.npy") + ": no such file"));
  std::ofstream(temp.file("bad.csv")) << "1,2\n3,four\n";
  CHECK(contains(of("bad.csv"), temp.file("bad.csv") + ":2: value 2: got 'four', expected a finite number"));
  std::ofstream(temp.file("text.bin")) << "hello";
  CHECK(contains(of("text.bin"), "expected idx, npy, npz, csv, PNG or JPEG. --format names one"));
  std::ofstream(temp.file("two.csv")) << "1,2\n";
  CHECK(contains(error({"predict", run, temp.file("two.csv")}, 2), "got samples of [2], the model expects [784]"));
  CHECK(contains(error({"predict", run, "-"}, 2), "standard input needs --format"));
  std::ofstream(temp.file("big.csv")) << "256\n";
  CHECK(contains(error({"predict", run, temp.file("big.csv"), "--pixels"}, 3),
                 "--pixels: sample 0, value 1: got 256, expected a whole number 0 .. 255"));
  std::ofstream(temp.file("names.txt")) << "one\n";
  write(temp.file("x.npy"), npy("|u1", "(3, 28, 28)", pixels()));
  CHECK(contains(error({"predict", run, temp.file("x.npy"), "--classes", temp.file("names.txt")}, 3),
                 "got 1 names, the model has 10 classes"));
  // Nothing of a good input is printed when a later one is bad.
  CHECK(contains(error({"predict", run, temp.file("x.npy"), temp.file("bad.csv")}, 3), "bad.csv:2"));
}

TEST_CASE("predict reads pictures, and prints the names of classes that the configuration has") {
  const TempDir temp;
  const std::string run =
      train(temp, kNet, {"data.class_names=[zero, one, two, three, four, five, six, seven, eight, \"nine, or 9\"]"});
  NpyBytes gray = pixels();
  gray.resize(784);
  NpyBytes color;
  for (const uint8_t byte : gray) color.insert(color.end(), 3, byte);
  write(temp.file("x.npy"), npy("|u1", "(1, 784)", gray));
  write(temp.file("gray.png"), png(28, 28, 0, gray));
  write(temp.file("color.png"), png(28, 28, 2, color));
  write(temp.file("wide.png"), png(1, 29, 0, NpyBytes(29)));
  const ProcessResult r = cli({"predict", run, temp.file("x.npy"), "--json", "--top", "2"});
  if (contains(cli({"predict", run, temp.file("gray.png")}).err, "built without libpng")) {
    WARN("skipped: built without libpng");
    return;
  }
  const Json all = Json::parse(r.out);
  const Json& p = all.at("predictions").at(size_t{0});
  const std::vector<std::string> names{"zero", "one", "two",   "three", "four",
                                       "five", "six", "seven", "eight", "nine, or 9"};
  CHECK(p.at("top").at(size_t{0}).at(size_t{2}).text() == names.at(static_cast<size_t>(p.at("class").get<int64_t>())));
  const auto predictions = [&](const std::string& file) {
    const std::string out = cli({"predict", run, temp.file(file), "--json", "--top", "2"}).out;
    return Json::parse(out).at("predictions").dump();
  };
  CHECK(predictions("gray.png") == predictions("x.npy"));
  CHECK(contains(error({"predict", run, temp.file("wide.png")}, 3),
                 "got a picture of 1 x 29 pixels, the model expects [784]: as many gray pixels"));
  CHECK(predictions("color.png") == predictions("x.npy"));  // gray by its luma, which keeps equal channels
  std::ofstream(temp.file("net.yaml")) << kNet;
  CHECK(contains(error({"train", temp.file("net.yaml"), "--out", temp.file("two"), "-q", "data.class_names=[a, b]"}, 2),
                 "class_names: got 2 names, data.train (digits (train)) has 10 classes"));
}

TEST_CASE("predict of a model of ids gives a class at each position, and refuses ids that it does not have") {
  const TempDir temp;
  std::ofstream(temp.file("text.txt")) << std::string(40, 'a') + std::string(40, 'b') + std::string(40, 'c');
  const std::string run =
      train(temp, "version: 1\nrun: {name: ids}\ndata: {train: {format: text, file: " + temp.file("text.txt") +
                      ", context: 4, targets: each}}\nmodel: {layers: [{embedding: {num: 3, dim: 4, "
                      "flat: false}}, {linear: {out: 3}}]}\nbatch: {global: 10, micro: 10}\n"
                      "optim: {name: adam, lr: 0.01}\ntrain: {stop: 2 steps}\n");
  std::ofstream(temp.file("ids.csv")) << "0,1,2,0\n1,1,1,1\n";
  const ProcessResult r = cli({"predict", run, temp.file("ids.csv"), "--json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json j = Json::parse(r.out).at("predictions");
  REQUIRE(j.size() == 2);
  CHECK(j.at(size_t{0}).at("class").size() == 4);
  CHECK(j.at(size_t{1}).at("top").size() == 4);
  CHECK(cli({"predict", run, temp.file("ids.csv"), "--csv"})
            .out.starts_with("input,sample,position,class,probability\n"));
  std::ofstream(temp.file("bad.csv")) << "0,1,3,0\n";
  CHECK(contains(error({"predict", run, temp.file("bad.csv")}, 2),
                 "sample 0, value 2: got id 3, the model has ids 0 .. 2"));
}

TEST_CASE("import reads weights of a network of a configuration, in its precision, and lists what does not fit") {
  const TempDir temp;
  std::ofstream(temp.file("net.yaml")) << "version: 1\nrun: {name: net}\ndata: {train: {format: digits, size: 10}}\n"
                                          "model: {layers: [{linear: {out: 2, bias: true}}], rename: {layers.0: fc}}\n"
                                          "batch: {global: 1, micro: 1}\nloss: softmax_cross_entropy\noptim: {name: "
                                          "sgd, lr: 0.1}\ntrain: {stop: 1 steps}\n";
  write(temp.file("w.npz"), zip({{"fc.weight.npy", npy("<f8", "(2, 3)", bytes_of<double>({1, -2, 3, 0.5, 0.25, -1}))},
                                 {"fc.bias.npy", npy("<f4", "(2,)", bytes_of<float>({10, 20}))}}));
  const ProcessResult r = cli({"import", temp.file("w.npz"), "--config", temp.file("net.yaml"), "--input", "3", "-o",
                               temp.file("m.safetensors")});
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "w.npz: 2 tensors -> "));
  const auto model = bitgrad::open_model(temp.file("m.safetensors"));
  CHECK(model->predict(bitgrad::Tensor::from({1, 2, 4}, {1, 3})).to_vector() == std::vector<float>{19.0f, 17.0f});
  // Signs: the weights are what the recipe makes of them.
  REQUIRE(cli({"import", temp.file("w.npz"), "--config", temp.file("net.yaml"), "--input", "3", "-o",
               temp.file("s.safetensors"), "quant.recipe=int8wo"})
              .code == 0);
  CHECK(contains(cli({"inspect", temp.file("s.safetensors")}).out, "int8"));
  const std::string wrong = error({"import", temp.file("w.npz"), "--config", temp.file("net.yaml"), "--input", "4",
                                   "-o", temp.file("n.safetensors"), "model.rename={layers.0: fc, layers.5: x}"},
                                  3);
  CHECK(contains(wrong, "shape: fc.weight [2,3] for layers.0.weight [2,4], expected [2,4]"));
  CHECK(contains(wrong, "rename: 'layers.5' matches no parameter of the model"));
  CHECK_FALSE(std::ifstream(temp.file("n.safetensors")).good());
  CHECK(contains(error({"import", temp.file("w.npz"), "-o", temp.file("n.safetensors")}, 2),
                 "weights of other networks need their layers: --config FILE"));
  CHECK(contains(error({"import", temp.file("w.npz"), "--config", temp.file("net.yaml"), "--input", "3,x", "-o",
                        temp.file("n.safetensors")},
                       2),
                 "--input: got '3,x', expected the shape of a sample"));
}
