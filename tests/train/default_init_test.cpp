// A network of layers that a program describes begins with what a configuration of the same layers begins with.
#include "bitgrad/nn/layers.h"
#include "bitgrad/train/learner.h"
#include "config/specs.h"
#include "support/catch.h"
#include "support/numbers.h"
#include "train/config_support.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<std::vector<uint32_t>> first_values(const std::vector<LayerSpec>& layers, int64_t features) {
  const auto model = make_sequential(layers, features);
  StepState state;
  state.seed = 3;
  model->initialize("layers", state);
  std::vector<std::vector<uint32_t>> values;
  for (const Parameter* p : model->parameters()) values.push_back(bits_of(p->master()));
  return values;
}

}  // namespace

TEST_CASE("layers of a program and of a configuration that name no initial values begin with the same bits") {
  const RunConfig config = parse_config(kFloat, "float.yaml");
  std::vector<LayerSpec> of_config, of_program;
  for (const LayerSpec& layer : config.layers) {
    of_config.push_back(layer);
    of_program.push_back(of_config.back());
    of_program.back().weight.init = {};
  }
  const auto values = first_values(of_program, 784);
  CHECK(values.size() >= 3);
  CHECK(values == first_values(of_config, 784));
}

TEST_CASE("a network of layers that name only their kind and size trains") {
  Learner learner(
      make_sequential({{.kind = "linear", .attributes = {{"out", 32}}},
                       {.kind = "relu"},
                       {.kind = "linear", .attributes = {{"out", 4}}}},
                      16),
      find_loss("softmax_cross_entropy"), {.name = "adam"}, {}, [](int64_t) { return 0.01f; }, /*seed=*/1);
  learner.plan({.input = {.sample = {16}}, .outputs = 4, .train_samples = 32});
  // The class of a sample is the block of four numbers with the largest sum.
  const Tensor x = random_tensor({32, 16}, dtypes::fp32, 5);
  std::vector<int32_t> labels;
  for (int64_t r = 0; r < 32; ++r) {
    int32_t best = 0;
    const auto sum = [&](int32_t block) {
      float s = 0;
      for (int64_t c = 0; c < 4; ++c) s += x.at({r, 4 * block + c});
      return s;
    };
    for (int32_t block = 1; block < 4; ++block)
      if (sum(block) > sum(best)) best = block;
    labels.push_back(best);
  }
  double loss = 0;
  for (int step = 0; step < 300; ++step) loss = learner.microbatch(x, labels).loss / 32;
  CHECK(loss < 0.1);  // ln 4 = 1.39 where nothing is learned
}
