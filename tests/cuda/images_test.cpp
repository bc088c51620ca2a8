// A network of images on the device: the bits of the CPU, and fused norms.
#include "cuda/counted.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec with(const std::string& kind, Attributes attributes) {
  LayerSpec spec = layer(kind);
  spec.attributes = std::move(attributes);
  return spec;
}

}  // namespace

TEST_CASE(
    "a network of images trains and evaluates on the device as on the CPU, and its norms before signs are fused") {
  const QuantSpec signs = binary({}, false);
  const LayerSpec quantize = quantize_layer(signs);
  const auto conv = [&](int64_t out, Compute compute) {
    LayerSpec spec = with("conv2d", {{"out", out}, {"kernel", int64_t{3}}, {"padding", int64_t{1}}, {"bias", false}});
    spec.weight.quant = signs;
    spec.product.compute = compute;
    return spec;
  };
  const Attributes two{{"size", int64_t{2}}};
  const std::vector<LayerSpec> layers = {conv(20, Compute::kPacked),
                                         layer("batch_norm"),
                                         quantize,
                                         with("max_pool", two),
                                         conv(24, Compute::kIntegerOut),
                                         layer("batch_norm"),
                                         layer("shift"),
                                         layer("prelu"),
                                         with("avg_pool", two),
                                         quantize,
                                         layer("flatten")};
  for (const bool watched : {false, true}) {
    const Counted fused("normalize_sign_cuda");
    CHECK(device_difference([&] {
            const auto model = make_layers(layers);
            Form in;
            in.samples = 3;
            in.sample = {8, 9, 5};
            model->plan(in);
            StepState state;
            state.seed = 11;
            model->initialize(kModelRoot, state);
            Results out;
            {
              Tape tape;
              const Var y = (*model)(Var(here(host_numbers({3, 8, 9, 5}, 1, 2))));
              tape.backward({y}, {here(host_numbers(y.shape(), 5))});
              out.push_back(y.value());
            }
            for (Parameter* p : model->parameters()) out.push_back(p->grad());
            for (const Module::Buffer& b : model->buffers()) out.push_back(b.tensor);
            state.training = false;
            if (watched) state.on_forward = [](const std::string&, const Tensor&, const Tensor&) {};
            const NoGrad none;
            out.push_back((*model)(Var(here(host_numbers({3, 8, 9, 5}, 2, 2)))).value());
            return out;
          }) == "");
    CHECK(fused.now() == (watched ? 0 : 1));
  }
}
