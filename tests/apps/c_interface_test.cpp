// bitgrad/c.h: a C99 program (c_interface.c) uses every function; its run has the state of the program's own.
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/npy_bytes.h"
#include "support/paths.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

void write(const std::string& path, const NpyBytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

// The samples of c_interface.c.
void write_samples(const TempDir& temp) {
  NpyBytes pixels, labels;
  uint32_t state = 7;
  for (uint32_t i = 0; i < 40; ++i) {
    labels.push_back(static_cast<uint8_t>(i % 3));
    for (uint32_t k = 0; k < 12; ++k) {
      state = state * 1664525u + 1013904223u;
      pixels.push_back(static_cast<uint8_t>((state >> 24) / 2 + (k % 3 == i % 3 ? 100 : 0)));
    }
  }
  write(temp.file("x.npy"), npy("|u1", "(40, 12, 1)", pixels));
  write(temp.file("y.npy"), npy("|u1", "(40,)", labels));
}

constexpr const char* kConfig = R"yaml(version: 1
run: {name: c, seed: 3}
data:
  train: {format: npy, images: x.npy, labels: y.npy, classes: 3}
  test: {format: npy, images: x.npy, labels: y.npy, classes: 3}
  affine: [2, -1]
model: {layers: [{linear: {out: 8}}, {relu: {}}, {linear: {out: 3}}]}
quant: {recipe: 8da4w, last: none}
batch: {global: 10, micro: 10}
optim: {name: adam, lr: 0.02}
train: {stop: 3 epochs}
device: {threads: 2}
)yaml";

}  // namespace

TEST_CASE("a C99 program trains, predicts and meets errors, with the state of the program's own run") {
  const TempDir temp;
  const ProcessResult c = run_program({build_path("bin/tests/c_interface"), temp.file("")});
  INFO(c.out << c.err);
  REQUIRE(c.code == 0);
  write_samples(temp);
  std::ofstream(temp.file("net.yaml")) << kConfig;
  const ProcessResult r = cli({"train", temp.file("net.yaml"), "-q", "--out", temp.file("own")});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const Json summary = Json::parse(slurp(temp.file("own/summary.json")));
  CHECK(summary.at("state_hash").text() + "\n" == c.out);
  // The run of the C program is a run folder like any other.
  CHECK(cli({"inspect", temp.file("run")}).code == 0);
  const ProcessResult eval = cli({"eval", temp.file("run")});
  CHECK(eval.code == 2);
  CHECK(eval.err.find("samples of format memory are arrays of the program that trained") != std::string::npos);
  CHECK(cli({"predict", temp.file("run"), temp.file("x.npy"), "--json"}).code == 0);
}
