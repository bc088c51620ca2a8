// model.blocks and containers in configurations: expansion, places of errors, round trips, training.
#include "bitgrad/config/config.h"
#include "bitgrad/nn/layers.h"
#include "config/specs.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string yaml(const std::string& model) {
  return "version: 1\ndata:\n  train: {format: digits, size: 40}\n  test: {format: digits, size: 20}\n" + model +
         "quant:\n  weights: {dtype: int8, scheme: absmax}\n  activations: {dtype: int8, scheme: absmax}\n"
         "batch: {global: 20}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 4 steps}\n";
}
RunConfig parsed(const std::string& model, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml(model), "small.yaml", overrides);
}
std::string refused(const std::string& model, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { parsed(model, overrides); });
}

const std::string kUnits =
    "model:\n"
    "  blocks:\n"
    "    dense: {keys: {c: required}, layers: [{linear: {out: $c}}, {relu: {}}]}\n"
    "    unit: {keys: {c: 12, p: 0.1}, layers: [{residual: {body: [{dense: {c: $c}}, {dropout: {p: $p}}]}}]}\n"
    "  layers:\n"
    "    - dense: {c: 12}\n"
    "    - unit: {p: 0.5}\n"
    "    - repeat: {times: 2, layers: [{unit: {}}]}\n"
    "    - linear: {out: 10}\n";

}  // namespace

TEST_CASE("a block expands to its layers, with the keys of each use") {
  const RunConfig c = parsed(kUnits);
  REQUIRE(c.layers.size() == 4);
  CHECK(c.layers[0].kind == "sequence");
  CHECK(c.layers[0].lists.at(0).layers.at(0).attributes.integer("out") == 12);
  const LayerSpec& residual = c.layers[1].lists.at(0).layers.at(0);
  REQUIRE(residual.kind == "residual");
  const std::vector<LayerSpec>& body = residual.lists.at(0).layers;
  REQUIRE(body.size() == 2);
  CHECK(body[0].kind == "sequence");
  CHECK(body[0].lists.at(0).layers.at(0).attributes.integer("out") == 12);
  CHECK(body[1].attributes.number("p") == 0.5);
  const LayerSpec& in_round = c.layers[2].lists.at(0).layers.at(0).lists.at(0).layers.at(0);
  CHECK(in_round.lists.at(0).layers.at(1).attributes.number("p") == 0.1);
  CHECK(origin_of(body[1]).block == "block 'unit', used at 11:7");
  CHECK(origin_of(body[0].lists[0].layers[0]).block == "block 'dense', used at 8:64, in block 'unit', used at 11:7");
}

TEST_CASE("a configuration with blocks is written back as the expanded layers") {
  const RunConfig c = parsed(kUnits);
  const std::string written = to_yaml(c);
  CHECK(contains(written,
                 "- repeat: {times: 2, recompute: false, cycle: false, layers: [{sequence: {recompute: false, layers: "
                 "[{residual: {scale: 1, body: [{sequence: "));
  const RunConfig again = parse_config(written, "again.yaml");
  CHECK(again == c);
  CHECK(to_yaml(again) == written);
}

TEST_CASE("overrides reach blocks, their uses and layers within containers") {
  CHECK(parsed(kUnits, {"model.layers.1.unit.p=0.25"})
            .layers[1]
            .lists[0]
            .layers[0]
            .lists[0]
            .layers[1]
            .attributes.number("p") == 0.25);
  CHECK(parsed(kUnits, {"model.blocks.unit.keys.p=0.75"})
            .layers[2]
            .lists[0]
            .layers[0]
            .lists[0]
            .layers[0]
            .lists[0]
            .layers[1]
            .attributes.number("p") == 0.75);
  CHECK(parsed(kUnits, {"model.layers.2.repeat.times=5"}).layers[2].attributes.integer("times") == 5);
  const std::string written = to_yaml(parsed(kUnits));
  const RunConfig c = parse_config(written, "again.yaml",
                                   {"model.layers.2.repeat.layers.0.sequence.layers.0.residual.body.1.dropout.p=0"});
  CHECK(c.layers[2].lists[0].layers[0].lists[0].layers[0].lists[0].layers[1].attributes.number("p") == 0);
}

TEST_CASE("what is wrong within a block is said at its definition, with the place of use") {
  // Shapes are known once the data are.
  const RunConfig wide = parsed(kUnits, {"model.layers.2.repeat.layers.0.unit.c=13"});
  const std::string shape = error_of([&] { build_learner(wide, {.sample = {784}}, 10, 40); });
  CHECK(contains(shape, "small.yaml:8:"));
  CHECK(contains(shape,
                 "[residual] body and x are added: got [n,13] fp32 and [n,12] fp32, expected one shape of fp32 (in "
                 "block 'unit', used at 12:36)"));
  const std::string range = refused(kUnits, {"model.layers.1.unit.p=1.5"});
  CHECK(contains(range,
                 "command line, argument 1: error: model.layers.1.sequence.layers.0.residual.body.1.dropout.p: "
                 "1.5 is out of range [0, 1) (in block 'unit', used at 11:7)"));
}

TEST_CASE("blocks and uses that do not fit are errors that name what is known") {
  const auto with = [](const std::string& blocks, const std::string& layers) {
    return refused("model:\n  blocks: " + blocks + "\n  layers: [" + layers + ", {linear: {out: 10}}]\n");
  };
  const std::string unit = "{unit: {keys: {c: required}, layers: [{linear: {out: $c}}]}}";
  CHECK(contains(with(unit, "{unit: {}}"), "block 'unit' needs the key 'c'"));
  CHECK(contains(with(unit, "{unit: {cc: 3}}"), "unknown key 'cc' of block 'unit'. Did you mean 'c'? Known: c"));
  CHECK(contains(with(unit, "{unit: 3}"), "unit: got '3', expected a map with the keys of the block: c"));
  CHECK(contains(with(unit, "{relu: {}}"), "model.blocks.unit: no layer uses this block"));
  CHECK(contains(with("{relu: {layers: []}}", "{relu: {}}"), "model.blocks.relu: is the name of a kind of layers"));
  CHECK(contains(with("{a: {layers: [{b: {}}]}, b: {layers: [{a: {}}]}}", "{a: {}}"), "block 'a' uses itself"));
  CHECK(contains(with("{a: {layers: [{linear: {out: $n}}]}}", "{a: {}}"), "'$n': block 'a' has no such key"));
  CHECK(contains(with("{a: {layer: []}}", "{a: {}}"), "model.blocks.a: expected {keys: {...}, layers: [...]}"));
  CHECK(contains(with("{a: {layers: [], key: {}}}", "{a: {}}"),
                 "unknown key 'key' in 'model.blocks.a'. Known: keys, layers"));
  CHECK(contains(with("{a: {layers: [{relu: {}}], keys: 3}}", "{a: {}}"), "model.blocks.a.keys: got '3'"));
  CHECK(contains(with("7", "{relu: {}}"), "model.blocks: got '7', expected a map of blocks"));
  CHECK(contains(with(unit, "{unti: {c: 3}}, {unit: {c: 3}}"),
                 "unknown layer kind 'unti' in 'model.layers.0'. Did you mean 'unit'?"));
  const std::string twice = "{unit: {c: 3}, unit: {c: 3}}";
  CHECK(contains(with(unit, twice), "duplicate key 'unit'; it is already set at"));
  CHECK(contains(with(unit, "{unit: {c: 3}, relu: {}}"), "a layer has one kind, got unit and relu"));
  CHECK(contains(with(unit, "{relu: {}, unit: {c: 3}}"), "a layer has one kind, got relu and unit"));
  CHECK(contains(with(unit, "{unit: {c: 3, c: 4}}"), "duplicate key 'c'"));
  CHECK(contains(with("{a: {layers: [{relu: {}}]}, a: {layers: [{relu: {}}]}}", "{a: {}}"), "duplicate key 'a'"));
  CHECK(contains(with("{a: {keys: {c: 1, c: 2}, layers: [{relu: {}}]}}", "{a: {}}"), "duplicate key 'c'"));
  CHECK(contains(with("{a: {layers: [{relu: {}}], layers: []}}", "{a: {}}"), "duplicate key 'layers'"));
  // One finding for all uses of a block, and for a misspelt key of all blocks.
  const std::string once = with("{a: {layers: [{linear: {ot: 3}}]}}", "{a: {}}, {a: {}}");
  CHECK(contains(once, "unknown key 'ot'"));
  CHECK(contains(once, "1 error."));
  const std::string misspelt =
      refused("model:\n  blokcs: " + unit + "\n  layers: [{unit: {c: 3}}, {linear: {out: 10}}]\n");
  CHECK(contains(misspelt, "unknown key 'blokcs' in 'model'. Did you mean 'blocks'?"));
  CHECK(contains(misspelt, "1 error."));
  // Blocks of blocks grow without end only on paper.
  std::string towers = "{b0: {layers: [{relu: {}}]}";
  for (int i = 1; i < 20; ++i) towers += concat(", b", i, ": {layers: [{b", i - 1, ": {}}, {b", i - 1, ": {}}]}");
  CHECK(contains(with(towers + "}", "{b19: {}}"), "blocks expand to more than 100000 values"));
}

TEST_CASE("containers report missing layers and keys") {
  const auto with = [](const std::string& layers) {
    return refused("model:\n  layers: [" + layers + ", {linear: {out: 10}}]\n");
  };
  CHECK(contains(with("{residual: {}}"), "missing required key 'model.layers.0.residual.body'"));
  CHECK(contains(with("{residual: {body: []}}"),
                 "model.layers.0.residual: residual: body: got no layers, expected at least one"));
  CHECK(contains(with("{residual: {body: 3}}"), "model.layers.0.residual.body: got '3', expected a list of layers"));
  CHECK(contains(with("{repeat: {times: 2}}"), "missing required key 'model.layers.0.repeat.layers'"));
  CHECK(contains(with("{repeat: {times: 0, layers: [{relu: {}}]}}"), "0 is out of range [1, 4096]"));
  CHECK(contains(with("{sequence: {layers: [{tanhh: {}}]}}"),
                 "unknown layer kind 'tanhh' in 'model.layers.0.sequence.layers.0'. Did you mean 'tanh'?"));
  CHECK(contains(refused("model:\n  layers: [{residual: {body: [{linear: {out: 10}}]}}, {relu: {}}]\n"),
                 "the output must come from a linear layer"));
}

// Each round is one of its layers: the error is about that of its round.
TEST_CASE("errors in a repeat with cycle name the layer of their round") {
  const auto model = [](int times, const std::string& turns, const std::string& behind = "    - linear: {out: 10}\n") {
    return "model:\n  layers:\n    - repeat:\n        times: " + std::to_string(times) +
           "\n        cycle: true\n        layers:\n" + turns + behind;
  };
  const std::string linear = "          - linear: {out: 12}\n", relu = "          - relu: {}\n",
                    norm = "          - batch_norm: {}\n";
  const RunConfig c = parsed(model(5, linear + relu + norm));
  const std::vector<LayerSpec>& turns = c.layers[0].lists.at(0).layers;
  REQUIRE(turns.size() == 3);
  for (int round = 0; round < 5; ++round)
    CHECK(config::layer_at(c.layers, concat("0.", round, ".0")) == &turns[static_cast<size_t>(round % 3)]);
  CHECK(config::layer_at(c.layers, "0.1.1") == &c.layers[0]);  // a round has one layer
  CHECK(config::layer_at(c.layers, "0.1") == &c.layers[0]);
  CHECK(config::layer_at(c.layers, "0.x.0") == &turns[0]);
  // The output is that of the last round, not that of the last layer.
  const std::string wide = "          - linear: {out: 10}\n";
  CHECK(refused(model(3, wide + relu, "")).empty());
  const std::string last = refused(model(2, wide + relu, ""));
  CHECK(contains(last, "small.yaml:12:13: error: model.layers: the output must come from a linear layer"));
  CHECK(refused(model(2, wide + norm, "")).empty());  // the norm of the last round keeps the scores of the first
  CHECK(contains(refused(model(3, relu + wide, "")), "the output must come from a linear layer"));
}
