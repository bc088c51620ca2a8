// bitgrad predict as its users run it.
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/train/predictor.h"
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
  CHECK(contains(of("none.npy"), temp.file("none.npy") + ": there is no such file"));
  std::ofstream(temp.file("bad.csv")) << "1,2\n3,four\n";
  CHECK(contains(of("bad.csv"), temp.file("bad.csv") + ":2: value 2: got 'four', expected a finite number"));
  std::ofstream(temp.file("text.bin")) << "hello";
  CHECK(contains(of("text.bin"), "expected idx, npy, csv, PNG or JPEG. --format names one"));
  std::ofstream(temp.file("two.csv")) << "1,2\n";
  CHECK(contains(error({"predict", run, temp.file("two.csv")}, 2), "got samples of [2], the model takes [784]"));
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
