// A norm and the quantizer of signs behind it run as one where nobody else reads the norm: with the bits of the two,
// one after the other, as they run where a hook looks at the layers.
#include "bitgrad/base/memory.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/rounding.h"
#include "nn/nn_support.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec layer(const std::string& kind, Attributes keys = {}) {
  LayerSpec spec;
  spec.kind = kind;
  spec.attributes = std::move(keys);
  return spec;
}
LayerSpec signs(SteRule ste) {
  LayerSpec spec = layer("quantize");
  spec.activation = quant_spec(dtypes::bint1, "binary");
  spec.activation->ste = ste;
  return spec;
}
LayerSpec of_signs(LayerSpec spec) {
  spec.weight.quant = quant_spec(dtypes::bint1, "binary");
  spec.weight.init = {"uniform", -1, 1};
  return spec;
}

// Values, gradients and running statistics of one step.
std::vector<std::vector<double>> step(const std::vector<LayerSpec>& specs, const Tensor& x, bool training,
                                      bool hooked) {
  Form in;
  in.samples = x.shape()[0];
  in.sample = Shape(std::vector<int64_t>(x.shape().dims().begin() + 1, x.shape().dims().end()));
  in.training = training;
  const auto model = make_model(ModelSpec{.input = in, .layers = specs});
  StepState state;
  state.seed = 7;
  model->initialize(kModelRoot, state);
  state.training = training;
  int calls = 0;
  if (hooked) state.on_forward = [&](const std::string&, const Tensor&, const Tensor&) { ++calls; };
  std::vector<std::vector<double>> out;
  Tape tape;
  AccumulateSink gx;
  const Var y = (*model)(tape.leaf(x, &gx, dtypes::fp32));
  CHECK((calls > 0) == hooked);
  out.push_back(y.value().values());
  tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 3)});
  out.push_back(gx.grad().values());
  for (const Parameter* p : model->parameters()) out.push_back(p->grad().values());
  for (const Module::Buffer& b : model->buffers()) out.push_back(b.tensor.elements());
  return out;
}

}  // namespace

TEST_CASE("a norm and the signs of it are one op with the bits of two, behind products, convolutions and pools") {
  for (const SteRule rule : {SteRule::kClip, SteRule::kIdentity, SteRule::kTanh, SteRule::kApproxSign})
    for (const bool training : {true, false})
      for (const int64_t width : {5, 16, 70}) {
        INFO(ste_name(rule) << (training ? ", training, " : ", evaluation, ") << width);
        const std::vector<LayerSpec> rows{layer("linear", {{"out", width}}), layer("batch_norm"), signs(rule),
                                          of_signs(layer("linear", {{"out", 9}}))};
        const Tensor x = random_tensor({33, 11}, dtypes::fp32, 2, -2, 2);
        CHECK(step(rows, x, training, false) == step(rows, x, training, true));
        const Attributes conv{{"out", width}, {"kernel", 3}, {"padding", 1}, {"bias", false}};
        const std::vector<LayerSpec> images{layer("conv2d", conv), layer("batch_norm"), signs(rule),
                                            layer("max_pool", {{"size", 2}}), of_signs(layer("conv2d", conv))};
        const Tensor pictures = random_tensor({3, 6, 6, 4}, dtypes::fp32, 4, -2, 2);
        CHECK(step(images, pictures, training, false) == step(images, pictures, training, true));
      }
}
