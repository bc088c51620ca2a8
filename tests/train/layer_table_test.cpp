// The table of layers: forms, parameters, bytes and multiplications against numbers worked out by hand; what a long one
// looks like.
#include "bitgrad/nn/layer_table.h"

#include <sstream>

#include "bitgrad/config/config.h"
#include "bitgrad/nn/layers.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::unique_ptr<Learner> built(const std::string& layers, const std::string& quant = "") {
  const RunConfig c =
      parse_config("version: 1\ndata: {train: {format: digits, size: 40}}\nmodel:\n  layers: [" + layers + "]\n" +
                       quant + "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 4 steps}\n",
                   "small.yaml");
  return build_learner(c, {.sample = {784}}, 10, 40);
}
std::string printed(Module& model, int64_t max_lines = 60) {
  std::ostringstream out;
  print_layer_table(out, model, max_lines);
  return out.str();
}
int64_t lines_in(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("the table of layers has form, parameters, bytes and multiplications of each layer") {
  const auto learner = built(
      "{quantize: {}}, {linear: {out: 64, bias: false}}, {batch_norm: {}}, "
      "{residual: {body: [{linear: {out: 64, weights: {dtype: fp32}}}, {relu: {}}]}}, {linear: {out: 10}}",
      "quant: {weights: {dtype: bint1, scheme: binary}, activations: {dtype: int8, scheme: absmax}}\n");
  const LayerTable table = layer_table(learner->model());
  REQUIRE(table.rows.size() == 6);
  const auto row = [&](size_t i) { return table.rows.at(i); };
  CHECK(row(0) == LayerRow{"layers.0", "quantize", "", "", {784}, dtypes::int8, 0, 0, 0});
  CHECK(
      row(1) ==
      LayerRow{
          "layers.1", "linear", "bint1 binary tensor", "as is", {64}, dtypes::fp32, 784 * 64, 64 * 784 / 8, 784 * 64});
  CHECK(row(2) == LayerRow{"layers.2", "batch_norm", "", "", {64}, dtypes::fp32, 2 * 64, 2 * 64 * 4, 0});
  CHECK(
      row(3) ==
      LayerRow{
          "layers.3.body.0", "linear", "fp32", "as is", {64}, dtypes::fp32, 64 * 64 + 64, (64 * 64 + 64) * 4, 64 * 64});
  CHECK(row(4) == LayerRow{"layers.3.body.1", "relu", "", "", {64}, dtypes::fp32, 0, 0, 0});
  CHECK(row(5).macs == 640);
  CHECK(row(5).bytes == 10 * 8 + 10 * 4);
  CHECK(table.parameters == 784 * 64 + 128 + 64 * 65 + 10 * 65);
  CHECK(table.macs == 784 * 64 + 64 * 64 + 640);
  CHECK(table.bytes == 64 * 98 + 512 + 64 * 65 * 4 + 120);
  const std::string text = printed(learner->model());
  CHECK(contains(
      text,
      "\nlayers.1         linear      [64] fp32           bint1 binary tensor  as is  50,176      6,272   50,176\n"));
  CHECK(contains(text, "total: 55,114 parameters, 23,544 bytes, 54,912 MACs per sample\n"));
}

TEST_CASE("rows of a sample multiply too, tables of ids do not, and a shared weight counts once") {
  const RunConfig c = parse_config(
      "version: 1\ndata: {train: {format: text, file: t, context: 8, targets: each}}\nmodel:\n  layers: [{embedding: "
      "{num: 50, "
      "dim: 16, flat: false}}, {linear: {out: 16}}, {head: {tie: layers.0}}]\n"
      "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 4 steps}\n",
      "small.yaml");
  Form in;
  in.sample = {8};
  in.dtype = dtypes::int32;
  in.ids = 50;
  const auto model = make_model(model_spec(c, in));
  StepState state;
  model->initialize(kModelRoot, state);
  const LayerTable table = layer_table(*model);
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0].macs == 0);
  CHECK(table.rows[0].output == Shape{8, 16});
  CHECK(table.rows[1].macs == 8 * 16 * 16);
  CHECK(table.rows[2].macs == 8 * 16 * 50);
  CHECK(table.rows[2].parameters == 0);
  CHECK(table.parameters == 50 * 16 + 16 * 16 + 16);
}

TEST_CASE("learned steps of weights and inputs are parameters of their layer, whose input the table names") {
  const auto learner = built("{linear: {out: 10, bias: false}}", "quant: {recipe: w4a4}\n");
  const LayerTable table = layer_table(learner->model());
  REQUIRE(table.rows.size() == 1);
  CHECK(table.rows[0].weight == "int4 lsq channel(0)");
  CHECK(table.rows[0].input == "int4 lsq tensor");
  CHECK(table.rows[0].parameters == 7840 + 10 + 1);
}

TEST_CASE("equal layers in a row are one group of lines, and totals count them all") {
  const auto learner = built(
      "{linear: {out: 32}}, {repeat: {times: 5, layers: [{residual: {body: [{linear: {out: 32}}, {relu: {}}]}}]}}, "
      "{relu: {}}, {relu: {}}, {linear: {out: 10}}");
  const std::string text = printed(learner->model());
  CHECK(contains(text, "layers.1.{0..4}.0.body.0  x 5    linear  [32] fp32"));
  CHECK(contains(text, "layers.1.{0..4}.0.body.1  x 5    relu"));
  CHECK(contains(text, "layers.{2..3}             x 2    relu"));
  CHECK(contains(text, "x N: N equal layers in a row, each with these numbers\n"));
  CHECK(lines_in(text) == 1 + 5 + 2);
  CHECK(layer_table(learner->model()).rows.size() == 1 + 10 + 3);
  CHECK(layer_table(learner->model()).macs == 784 * 32 + 5 * 32 * 32 + 320);
}

TEST_CASE("an empty branch, which is its input, has no line") {
  const auto learner = built("{linear: {out: 32}}, {branches: {layers: [[], [{relu: {}}]]}}, {linear: {out: 10}}");
  const LayerTable table = layer_table(learner->model());
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[1].layer == "layers.1.1.0");
  CHECK(table.rows[2].macs == 640);
}

TEST_CASE("a long table counts layers without products with the line above, then leaves lines out") {
  std::string layers;
  int64_t parameters = 0, width = 784;
  for (int i = 0; i < 20; ++i) {
    layers += concat("{linear: {out: ", 40 + i, "}}, {batch_norm: {}}, {relu: {}}, ");
    parameters += (40 + i) * (width + 1) + 2 * (40 + i);
    width = 40 + i;
  }
  const auto learner = built(layers + "{linear: {out: 10}}");
  CHECK(lines_in(printed(learner->model(), 61)) == 1 + 61 + 1);
  const std::string text = printed(learner->model(), 60);
  CHECK(lines_in(text) == 1 + 21 + 2);
  CHECK(contains(text, "layers.3   linear +2  [41] fp32"));
  CHECK(contains(text, concat("  ", 41 * 41 + 2 * 41, "  ")) == false);  // with separators
  CHECK(contains(text, "1,763 "));
  CHECK(contains(text, "+N: with the N layers that follow, which multiply nothing and keep the shape\n"));
  const std::string cut = printed(learner->model(), 10);
  CHECK(lines_in(cut) == 1 + 10 + 2);
  CHECK(contains(cut, "... 12 lines\n"));
  CHECK(contains(cut, "layers.60"));
  CHECK(layer_table(learner->model()).parameters == parameters + 10 * (width + 1));
}
