// Layers on a device: first numbers, forward, gradients and buffers are those of the CPU.
#include "bitgrad/nn/init.h"
#include "bitgrad/nn/layers.h"
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

TEST_CASE("first numbers are drawn alike") {
  for (const std::string_view rule : init_names()) {
    INFO(rule);
    CHECK(device_difference([&] {
            const Tensor full = Tensor::empty({13, 29}, dtypes::fp32), part = Tensor::empty({2, 29}, dtypes::fp32);
            const Init init{std::string(rule), 0.25, 0.75};
            initialize(init, 7, "layers.0.weight", full);
            initialize_part(init, 7, "layers.0.weight", {13, 29}, 3 * 29, part);
            return Results{full, part};
          }) == "");
  }
}

LayerSpec layer(const std::string& kind, int64_t out = 0) {
  LayerSpec spec;
  spec.kind = kind;
  if (out > 0) spec.attributes = {{"out", out}, {"bias", true}};
  if (kind == "dropout") spec.attributes["p"] = 0.5;
  spec.weight.init = {"glorot_normal", 0, 0};
  return spec;
}

// Two microbatches of training and an evaluation: outputs, gradients, buffers.
Results train(const std::shared_ptr<Sequential>& model, const Tensor& x, int64_t features) {
  StepState state;
  state.seed = 11;
  model->initialize(kModelRoot, state);
  Form meta;
  meta.samples = x.rows();
  meta.sample = {features};
  meta.dtype = x.dtype();
  model->plan(meta);
  Results out;
  for (int i = 0; i < 2; ++i) {
    Tape tape;
    const Var y = (*model)(Var(here(x)));
    tape.backward({y}, {here(host_numbers(y.shape(), 5))});
    out.push_back(y.value());
    ++state.microbatch;
  }
  for (Parameter* p : model->parameters()) {
    out.push_back(p->value());
    out.push_back(p->grad());
  }
  for (const Module::Buffer& b : model->buffers()) out.push_back(b.tensor);
  state.training = false;
  const NoGrad none;
  out.push_back((*model)(Var(here(x))).value());
  return out;
}

TEST_CASE("a network of floats trains alike") {
  const std::vector<LayerSpec> layers{layer("dropout"),  layer("linear", 33), layer("batch_norm"),
                                      layer("relu"),     layer("linear", 20), layer("tensor_norm"),
                                      layer("hardtanh"), layer("tanh"),       layer("linear", 10)};
  CHECK(device_difference([&] { return train(make_sequential(layers, 50), host_numbers({37, 50}, 1), 50); }) == "");
}

TEST_CASE("a network of ids trains alike") {
  LayerSpec table = layer("embedding");
  table.attributes["num"] = 17;
  table.attributes["dim"] = 6;
  std::vector<double> ids;
  for (int i = 0; i < 12 * 4; ++i) ids.push_back(i * i % 17);
  CHECK(device_difference([&] {
          const std::vector<std::shared_ptr<Module>> modules{make_layer(table, 4), make_layer(layer("linear", 9), 24)};
          return train(std::make_shared<Sequential>(modules), Tensor::from_elements({12, 4}, dtypes::int32, ids), 4);
        }) == "");
}

}  // namespace
