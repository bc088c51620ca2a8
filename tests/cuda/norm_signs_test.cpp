// A norm that signs are taken of, in evaluation: one kernel on the (emulated) device, without the norm's numbers.
#include <cmath>

#include "cuda/counted.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

struct Net {
  std::string name;
  std::vector<LayerSpec> layers;
  int64_t fused;  // norms whose numbers are not made
};

LayerSpec binary_linear(int64_t out) {
  LayerSpec spec = layer("linear", out);
  spec.weight.quant = binary(Granularity::channel(0));
  return spec;
}

std::vector<Net> norm_nets() {
  const LayerSpec signs = quantize_layer(binary({}, false));
  return {
      {"batch_norm", {signs, binary_linear(40), layer("batch_norm"), signs, binary_linear(10)}, 1},
      {"tensor_norm", {layer("tensor_norm"), signs, binary_linear(10), layer("tensor_norm")}, 1},
      {"two norms", {layer("batch_norm"), layer("batch_norm"), signs, binary_linear(10)}, 1},
      {"alpha", {layer("batch_norm"), quantize_layer(binary(Granularity::token())), binary_linear(10)}, 0},
      {"int8", {layer("batch_norm"), quantize_layer(scheme("absmax", dtypes::int8, {})), binary_linear(10)}, 0},
      {"another layer between", {layer("batch_norm"), layer("hardtanh"), signs, binary_linear(10)}, 0},
  };
}

struct Evaluation {
  Results out;
  int64_t fused = 0, peak = 0;
};

// Evaluations of nets, on_forward set or not; bytes of the peak.
Evaluation evaluate(const std::vector<LayerSpec>& layers, const Tensor& x, bool watched) {
  const auto model = make_sequential(layers, x.cols());
  StepState state;
  state.seed = 11;
  model->initialize(kModelRoot, state);
  {
    Tape tape;  // running statistics that are not 0 and 1
    (*model)(Var(here(host_numbers({37, x.cols()}, 4, 3))));
  }
  state.training = false;
  if (watched) state.on_forward = [](const std::string&, const Tensor&, const Tensor&) {};
  const NoGrad none;
  const Counted fused("normalize_sign_cuda");
  const Tensor in = here(x);
  poll_errors();
  reset_memory_peaks();
  const int64_t before = memory_now()[MemoryKind::kActivation];
  Evaluation e;
  e.out.push_back((*model)(Var(in)).value());
  e.peak = memory_peak_by_kind()[MemoryKind::kActivation] - before;
  e.fused = fused.now();
  return e;
}

TEST_CASE("an evaluation computes no values of a norm of which only signs are used") {
  for (const Net& net : norm_nets())
    for (const int64_t rows : {1, 33}) {
      INFO(net.name << ' ' << rows);
      const Tensor x = host_numbers({rows, 70}, 1, 3);
      int64_t fused = -1;
      CHECK(device_difference([&] {
              const Evaluation e = evaluate(net.layers, x, false);
              fused = e.fused;
              return e.out;
            }) == "");
      CHECK(fused == net.fused);
      for (const Device device : {Device::cpu(), gpu()}) {
        const StrictBits strict;
        const DeviceGuard guard(device);
        const Evaluation apart = evaluate(net.layers, x, true), together = evaluate(net.layers, x, false);
        CHECK(difference(apart.out[0], together.out[0]) == "");
        CHECK(apart.fused == 0);
      }
    }
}

TEST_CASE("a norm in front of signs keeps one bit an element instead of 32 more") {
  const std::vector<LayerSpec> layers{layer("batch_norm"), quantize_layer(binary({}, false))};
  const Tensor x = host_numbers({300, 256}, 1);
  for (const Device device : {Device::cpu(), gpu()}) {
    const DeviceGuard guard(device);
    const int64_t y = 300 * 256 * 4, bits = 300 * 256 / 8, statistics = 3 * 256 * 4 + 4096;
    const int64_t apart = evaluate(layers, x, true).peak, together = evaluate(layers, x, false).peak;
    CHECK(apart >= y + bits);
    CHECK(together <= bits + statistics);
  }
}

TEST_CASE("empty batches pass a norm in front of signs") {
  const std::vector<LayerSpec> layers{layer("batch_norm"), quantize_layer(binary({}, false)), binary_linear(10)};
  CHECK(device_difference([&] { return evaluate(layers, host_numbers({0, 70}, 1), false).out; }) == "");
}

TEST_CASE("a norm in front of a linear layer that quantizes its input by signs") {
  LayerSpec spec = binary_linear(10);
  for (const bool bias : {false, true}) {
    spec.attributes["bias"] = bias;
    const auto run = [&](bool watched) {
      const auto model = make_sequential({layer("batch_norm"), spec}, 70);
      StepState state;
      state.seed = 11;
      model->initialize(kModelRoot, state);
      Quantizable& slot = *model->quantizables().front();
      LayerQuant quant = slot.quant();
      quant.input = binary({}, false);
      slot.set(quant);
      state.training = false;
      if (watched) state.on_forward = [](const std::string&, const Tensor&, const Tensor&) {};
      const NoGrad none;
      Results out{(*model)(Var(here(host_numbers({19, 70}, 1, 3)))).value()};
      QuantMode off;
      off.quantization = QuantSwitch::kOff;
      slot.set_mode(off);
      out.push_back((*model)(Var(here(host_numbers({19, 70}, 1, 3)))).value());
      return out;
    };
    const Counted fused("normalize_sign_cuda");
    CHECK(device_difference([&] { return run(false); }) == "");
    CHECK(fused.now() == 1);  // not while the layer is off
    const StrictBits strict;
    const Results apart = run(true), together = run(false);
    for (size_t i = 0; i < apart.size(); ++i) CHECK(difference(apart[i], together[i]) == "");
  }
}

TEST_CASE("NaN before signs, and inputs that a norm refuses, give the texts of the modules one by one") {
  for (const Device device : {Device::cpu(), gpu()}) {
    const DeviceGuard guard(device);
    std::vector<std::string> raised, wrong_form, wrong_shape;
    for (const bool watched : {false, true}) {
      const auto model =
          make_sequential({layer("batch_norm"), quantize_layer(binary({}, false)), binary_linear(10)}, 70);
      StepState state;
      model->initialize(kModelRoot, state);
      state.training = false;
      if (watched) state.on_forward = [](const std::string&, const Tensor&, const Tensor&) {};
      const NoGrad none;
      Tensor x = host_numbers({5, 70}, 1);
      x.as<float>()[100] = INFINITY;
      (*model)(Var(here(x)));
      poll_errors();
      for (const std::string& name : state.flags.raised()) raised.push_back(name);
      wrong_shape.push_back(error_of([&] { (*model)(Var(here(host_numbers({5, 71}, 1)))); }));
      wrong_form.push_back(error_of([&] { (*model)(Var(here(host_codes({5, 70}, dtypes::int8, 1)))); }));
    }
    CHECK(raised == std::vector<std::string>{"layers.1", "layers.1"});
    CHECK(contains(wrong_shape[0], "layer 0: [batch_norm] gamma must be [71]"));
    CHECK(contains(wrong_form[0], "layer 0: [batch_norm] x must be fp32"));
    CHECK(wrong_shape[0] == wrong_shape[1]);
    CHECK(wrong_form[0] == wrong_form[1]);
  }
}

TEST_CASE("an error of the norm's own checks names the norm's layer, also where the two are one kernel") {
  for (const Device device : {Device::cpu(), gpu()}) {
    const DeviceGuard guard(device);
    std::vector<std::string> texts;
    for (const bool watched : {false, true}) {
      const auto model = make_sequential({layer("batch_norm"), quantize_layer(binary({}, false))}, 70);
      StepState state;
      model->initialize(kModelRoot, state);
      model->parameters().front()->change([&](ParameterSpec& s) { s.quant = scheme("absmax", dtypes::int8, {}); });
      state.training = false;
      if (watched) state.on_forward = [](const std::string&, const Tensor&, const Tensor&) {};
      const NoGrad none;
      texts.push_back(error_of([&] { (*model)(Var(here(host_numbers({5, 70}, 1)))); }));
    }
    CHECK(contains(texts[0], "layer 0: [batch_norm] gamma must be [70]"));
    CHECK(texts[0] == texts[1]);
  }
}

TEST_CASE("a training net, and an evaluation on a tape, use the norm's values") {
  const std::vector<LayerSpec> layers{layer("batch_norm"), quantize_layer(binary({}, false)), binary_linear(10)};
  for (const bool training : {false, true}) {
    const Counted fused("normalize_sign_cuda");
    CHECK(device_difference([&] {
            const auto model = make_sequential(layers, 70);
            StepState state;
            model->initialize(kModelRoot, state);
            state.training = training;
            Tape tape;
            const Var y = (*model)(Var(here(host_numbers({9, 70}, 1))));
            tape.backward({y}, {here(host_numbers(y.shape(), 2))});
            Results out{y.value()};
            for (const Parameter* p : model->parameters()) out.push_back(p->grad());
            return out;
          }) == "");
    CHECK(fused.now() == 0);
  }
}

}  // namespace
