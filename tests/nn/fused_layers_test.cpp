// A norm and the quantizer of signs behind it run as one where nobody else reads the norm: with the bits of the two,
// one after the other, as they run where a hook looks at the layers.
#include <optional>
#include <random>

#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/scheme.h"
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
  spec.activation = ActivationQuant{quant_spec(dtypes::bint1, "binary")};
  spec.activation->spec.ste = ste;
  return spec;
}
LayerSpec of_signs(LayerSpec spec) {
  spec.weight.quant = quant_spec(dtypes::bint1, "binary");
  spec.weight.init = {"uniform", -1, 1};
  return spec;
}

// Output, gradients and running statistics of a step of training, or the output of an evaluation without a tape. own:
// the last layer quantizes its input to signs, with this straight-through rule.
std::vector<std::vector<double>> step(const std::vector<LayerSpec>& specs, const Tensor& x, bool training, bool hooked,
                                      std::optional<SteRule> own = {}) {
  Form in;
  in.samples = x.shape()[0];
  in.sample = Shape(std::vector<int64_t>(x.shape().dims().begin() + 1, x.shape().dims().end()));
  in.training = training;
  const auto model = make_model(ModelSpec{.input = in, .layers = specs});
  if (own) {
    LayerQuant quant;
    quant.weight = quant_spec(dtypes::bint1, "binary");
    quant.input = signs(*own).activation->spec;
    model->quantizables().back()->set(quant, {});
    model->plan(in);
  }
  StepState state;
  state.seed = 7;
  model->initialize(kModelRoot, state);
  state.training = training;
  int calls = 0;
  if (hooked) state.on_forward = [&](const std::string&, const Tensor&, const Tensor&) { ++calls; };
  std::vector<std::vector<double>> out;
  if (!training) {
    const NoGrad no_grad;
    out.push_back((*model)(Var(x)).value().values());
    CHECK((calls > 0) == hooked);
    return out;
  }
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
        INFO(enum_name(rule) << (training ? ", training, " : ", evaluation, ") << width);
        const auto check = [&](const std::vector<LayerSpec>& specs, const Tensor& x, std::optional<SteRule> own) {
          const bool same = step(specs, x, training, false, own) == step(specs, x, training, true, own);
          CHECK(same);
        };
        const LayerSpec first = layer("linear", {{"out", width}}), last = of_signs(layer("linear", {{"out", 9}}));
        const Tensor x = random_tensor({33, 11}, dtypes::fp32, 2, -2, 2);
        check({first, layer("batch_norm"), signs(rule), last}, x, {});
        check({first, layer("batch_norm"), last}, x, rule);
        const Attributes keys{{"out", width}, {"kernel", 3}, {"padding", 1}, {"bias", false}};
        const LayerSpec conv = layer("conv2d", keys), of_image = of_signs(layer("conv2d", keys));
        const Tensor images = random_tensor({3, 6, 6, 4}, dtypes::fp32, 4, -2, 2);
        check({conv, layer("batch_norm"), signs(rule), layer("max_pool", {{"size", 2}}), of_image}, images, {});
        check({conv, layer("batch_norm"), of_image}, images, rule);
      }
}

// Chunks of the sums begin within rows of pixels; windows overlap, leave pixels out, and hang over the border.
TEST_CASE("a norm, its signs and a pool of them are one op with the bits of three") {
  const int threads = num_threads();
  std::mt19937 random(11);
  const auto in = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random()) % (high - low + 1); };
  const std::vector<Attributes> pools{
      {{"size", 2}},
      {{"size", 3}, {"stride", 2}, {"padding", 1}},
      {{"size", 2}, {"stride", 3}},
      {{"size", std::vector<int64_t>{1, 3}}, {"stride", std::vector<int64_t>{2, 1}}},
  };
  for (const SteRule rule : {SteRule::kClip, SteRule::kIdentity})
    for (size_t i = 0; i < 6 * pools.size(); ++i) {
      const int64_t n = in(1, 6), h = in(3, 30), w = in(3, 30), c = in(1, 150);
      INFO(enum_name(rule) << ", pool " << i % pools.size() << ": " << n << " x " << h << " x " << w << " x " << c);
      const std::vector<LayerSpec> layers{layer("batch_norm"), signs(rule), layer("max_pool", pools[i % pools.size()]),
                                          of_signs(layer("conv2d", {{"out", 5}, {"kernel", 1}, {"bias", false}}))};
      const Tensor x = random_tensor({n, h, w, c}, dtypes::fp32, i, -2, 2);
      const auto expected = step(layers, x, true, true);
      for (const int count : {1, 3}) {
        set_num_threads(count);
        const bool same = step(layers, x, true, false) == expected;
        CHECK(same);
      }
      set_num_threads(threads);
      const bool same = step(layers, x, false, false) == step(layers, x, false, true);
      CHECK(same);
    }
}
