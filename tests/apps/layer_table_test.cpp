// The table of layers as users of the program see it.
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"

using bitgrad::Json;
using namespace bitgrad::test;

TEST_CASE("train prints and logs the table of layers before the first step, and inspect has it of a file") {
  TempDir temp;
  std::ofstream(temp.file("c.yaml"))
      << "version: 1\ndata: {train: {format: digits, size: 200}, test: {format: digits, size: 50}, affine: [2, -1]}\n"
         "model:\n  blocks:\n    hidden:\n      layers: [{linear: {out: 64, bias: false}}, {batch_norm: {}}, "
         "{quantize: {}}, {dropout: {p: 0.2}}]\n  layers: [{quantize: {}}, {dropout: {p: 0.2}}, {hidden: {}}, "
         "{hidden: {}}, {hidden: {}}, {linear: {out: 10, bias: false}}, {tensor_norm: {}}]\n"
         "quant: {weights: {dtype: bint1, scheme: binary}, activations: {dtype: bint1, scheme: binary}}\n"
         "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 5 steps}\n";
  const ProcessResult r = cli({"train", temp.file("c.yaml"), "--out", temp.file("run")});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const std::string line =
      "layers.{3..4}.0  x 2    linear       [64] fp32           bint1 binary tensor  as is  4,096 ";
  const std::string total = "total: 59,394 parameters, 8,920 bytes, 59,008 MACs per sample\n";
  CHECK(contains(r.err, line));
  CHECK(contains(r.err, total));
  CHECK(r.err.find(total) < r.err.find("epoch 0"));
  const std::string log = slurp(temp.file("run/train.log"));
  CHECK(contains(log, line));
  CHECK(contains(log, total));
  const ProcessResult table = cli({"inspect", temp.file("run"), "--table"});
  CHECK(contains(table.out, line));
  CHECK(contains(table.out, total));
  const Json json = Json::parse(cli({"inspect", temp.file("run"), "--json"}).out).at("table");
  CHECK(json.at("parameters") == 59394);
  CHECK(json.at("bytes") == 8920);
  CHECK(json.at("macs") == 59008);
  const Json& row = json.at("rows").at(size_t{2});
  CHECK(row.at("layer") == "layers.2.0");
  CHECK(row.at("kind") == "linear");
  CHECK(row.at("output").at(size_t{0}) == 64);
  CHECK(row.at("macs") == 784 * 64);
}
