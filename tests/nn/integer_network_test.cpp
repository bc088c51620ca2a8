// A network that stays in integers from its first quantize to its last dequantize trains beside its float simulation:
// the same list of layers with compute: simulated.
#include <cmath>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/label_loss.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kRows = 96, kIn = 16, kClasses = 3;

LayerSpec plain(const std::string& kind) {
  LayerSpec spec;
  spec.kind = kind;
  return spec;
}
LayerSpec linear_layer(int64_t out, Compute compute, bool bias) {
  LayerSpec spec = plain("linear");
  spec.attributes["out"] = out;
  spec.attributes["bias"] = bias;
  spec.product.compute = compute;
  spec.weight.quant = quant_spec(dtypes::int8, "symmetric");
  spec.weight.quant->granularity = Granularity::channel(0);
  spec.weight.init = {"glorot_uniform"};
  return spec;
}
LayerSpec quantize_layer(const QuantSpec& quant) {
  LayerSpec spec = plain("quantize");
  spec.activation = ActivationQuant{quant};
  return spec;
}

// How the codes between the two products get their scale.
enum class Between { kDynamic, kAbsmax, kObserved, kLsq, kPact, kToken };
LayerSpec between(Between how) {
  LayerSpec spec = quantize_layer(quant_spec(dtypes::int8, "symmetric"));
  if (how == Between::kAbsmax) spec.activation = ActivationQuant{quant_spec(dtypes::uint8, "absmax")};
  if (how == Between::kObserved) {
    spec.activation->observer.emplace();
    spec.activation->observer->momentum = 0.5f;
  }
  if (how == Between::kLsq) spec.activation = ActivationQuant{quant_spec(dtypes::uint8, "lsq")};
  if (how == Between::kPact) {
    spec.activation = ActivationQuant{quant_spec(dtypes::uint8, "pact")};
    spec.activation->spec.first_clip = 4;
  }
  if (how == Between::kToken) {
    // Not symmetric: it puts the largest number of each row on a tie, where a last bit decides the mask.
    spec.activation = ActivationQuant{quant_spec(dtypes::int8, "absmax")};
    spec.activation->spec.granularity = Granularity::token();
  }
  return spec;
}

std::vector<LayerSpec> layers(Compute compute, Between how) {
  LayerSpec last = linear_layer(kClasses, compute, false);
  if (how == Between::kToken) last.weight.quant->granularity = Granularity::tensor();
  return {quantize_layer(quant_spec(dtypes::int8, "symmetric")),
          linear_layer(24, compute, true),
          plain("relu"),
          between(how),
          last,
          plain("dequantize")};
}

struct Net {
  Net(Compute compute, Between how) : model(make_sequential(layers(compute, how), kIn)) {
    model->initialize("layers", state);
    Form in;
    in.samples = kRows;
    in.sample = {kIn};
    model->plan(in);
  }

  double backward(const Tensor& x, const std::vector<int32_t>& labels) {
    Tape tape;
    const Var loss = label_loss(model->forward(Var(x)), labels);
    tape.backward(loss);
    ++state.microbatch;
    return loss.value().item() / static_cast<double>(kRows);
  }
  void step(float rate) {
    ++state.step;
    for (Parameter* p : model->parameters()) {
      const std::vector<double> g = p->grad().elements();
      for (int64_t i = 0; i < p->master().numel(); ++i)
        p->master().as<float>()[i] -= rate * static_cast<float>(g[static_cast<size_t>(i)]) / kRows;
      p->grad_sink().clear();
      p->requantize(state.seed, state.step);
    }
  }

  StepState state;
  std::shared_ptr<Sequential> model;
};

Tensor data() { return random_tensor({kRows, kIn}, dtypes::fp32, 21, -2, 2); }

// The class whose direction fits best.
std::vector<int32_t> labels_of(const Tensor& x) {
  const std::vector<double> w = random_numbers(dtypes::fp32, kIn * kClasses, 22), v = x.elements();
  std::vector<int32_t> out;
  for (int64_t r = 0; r < kRows; ++r) {
    double best = -1e9;
    int32_t label = 0;
    for (int64_t c = 0; c < kClasses; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < kIn; ++i)
        sum += v[static_cast<size_t>(r * kIn + i)] * w[static_cast<size_t>(c * kIn + i)];
      if (sum <= best) continue;
      best = sum;
      label = static_cast<int32_t>(c);
    }
    out.push_back(label);
  }
  return out;
}

const Between kAll[] = {Between::kDynamic, Between::kAbsmax, Between::kObserved,
                        Between::kLsq,     Between::kPact,   Between::kToken};

}  // namespace

TEST_CASE("an integer network and its simulated version have close gradients, and both learn") {
  const Tensor x = data();
  const std::vector<int32_t> labels = labels_of(x);
  for (const Between how : kAll) {
    INFO(static_cast<int>(how));
    Net integer(Compute::kIntegerOut, how), fake(Compute::kSimulated, how);
    double first[2] = {}, last[2] = {};
    for (int i = 0; i < 60; ++i) {
      last[0] = integer.backward(x, labels);
      last[1] = fake.backward(x, labels);
      if (i == 0) {
        std::copy(last, last + 2, first);
        const auto a = integer.model->parameters(), b = fake.model->parameters();
        REQUIRE(a.size() == b.size());
        for (size_t p = 0; p < a.size(); ++p) {
          INFO(a[p]->path());
          REQUIRE(a[p]->grad_sink().filled());
          CHECK(distance(a[p]->grad(), b[p]->grad()) < 0.02);
        }
        CHECK(std::fabs(first[0] - first[1]) < 0.005);
      }
      integer.step(0.5f);
      fake.step(0.5f);
    }
    CHECK(last[0] < 0.5 * first[0]);
    CHECK(last[1] < 0.5 * first[1]);
    CHECK(std::fabs(last[0] - last[1]) < 0.05);
  }
}

TEST_CASE("a batch of zeros, or a dead layer, ends no run of an integer network") {
  const std::vector<int32_t> labels(kRows, 1);
  for (const Between how : {Between::kDynamic, Between::kAbsmax, Between::kLsq, Between::kPact}) {
    Net net(Compute::kIntegerOut, how);
    Parameter* bias = net.model->parameters()[1];
    REQUIRE(bias->path() == "layers.1.bias");
    for (const float b : {0.5f, -0.5f}) {  // -0.5: every output of the relu is 0
      INFO(static_cast<int>(how) << ", bias " << b);
      for (int64_t i = 0; i < bias->master().numel(); ++i) bias->master().as<float>()[i] = b;
      for (Parameter* p : net.model->parameters()) p->grad_sink().clear();
      CHECK(std::isfinite(net.backward(Tensor::zeros({kRows, kIn}, dtypes::fp32), labels)));
      for (const double g : bias->grad().elements()) CHECK(std::isfinite(g));
    }
    for (Parameter* p : net.model->parameters()) p->grad_sink().clear();
    CHECK(std::isfinite(net.backward(data(), labels)));
  }
}

TEST_CASE("no fp32 activation is between the first quantize and the last dequantize, in the plan and in the run") {
  for (const Between how : kAll) {
    Net net(Compute::kIntegerOut, how);
    Form meta;
    meta.samples = kRows;
    meta.sample = {kIn};
    Var x = data();
    for (size_t i = 0; i < net.model->size(); ++i) {
      Module& layer = (*net.model)[i];
      meta = layer.plan(meta);
      x = layer.forward(x);
      INFO(static_cast<int>(how) << " layer " << i);
      CHECK(x.dtype() == meta.dtype);
      CHECK(x.dtype().is_float() == (i + 1 == net.model->size()));
      CHECK(bool(x.value().quant() && x.value().quant()->scale) == meta.scales.has_value());
      if (meta.scales) CHECK(x.value().quant()->granularity == meta.scales->granularity);
    }
  }
}

TEST_CASE("a requantizing layer uses the range of the int32 values") {
  // Values 0.5 * {-100, 20, 30; 0, 254, 7}: the range is [-50, 127].
  QuantParams in;
  in.scheme = "product";
  in.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, 0.5));
  const std::vector<double> numbers{-100, 20, 30, 0, 254, 7};
  const Tensor x =
      Tensor::from_elements({2, 3}, dtypes::int32, numbers).with_quant(std::make_shared<const QuantParams>(in));
  const auto codes = [&](const QuantSpec& spec, std::vector<double>* scales = nullptr) {
    const auto layer = make_layer(quantize_layer(spec), 3);
    StepState state;
    layer->initialize("q", state);
    const Tensor y = layer->forward(Var(x)).value();
    if (scales) *scales = y.quant()->scale->elements();
    return y.elements();
  };
  std::vector<double> scales;
  CHECK(codes(quant_spec(dtypes::int8, "absmax"), &scales) ==
        std::vector<double>{-50, 10, 15, 0, 127, 4});  // 3.5 to even
  CHECK(scales == std::vector<double>{1});
  const float s = 127.0f / 7.5f;  // symmetric: half of the 15 steps of int4
  std::vector<double> want;
  for (const double v : numbers)
    want.push_back(std::clamp(static_cast<double>(std::nearbyint(static_cast<float>(v) * (0.5f / s))), -8.0, 7.0));
  CHECK(codes(quant_spec(dtypes::int4, "symmetric"), &scales) == want);
  CHECK(scales == std::vector<double>{static_cast<double>(s)});
  QuantSpec token = quant_spec(dtypes::int8, "absmax");
  token.granularity = Granularity::token();
  CHECK(codes(token, &scales) == std::vector<double>{-127, 25, 38, 0, 127, 4});
  CHECK(scales == std::vector<double>{static_cast<double>(50.0f / 127.0f), 1});
  token.scheme = "affine";  // rows of [-50, 15] and [0, 127]
  const float steps[] = {65.0f / 255.0f, 127.0f / 255.0f};
  const float zeros[] = {-128 - std::nearbyint(-50 / steps[0]), -128};
  want.clear();
  for (size_t i = 0; i < 6; ++i)
    want.push_back(
        static_cast<double>(std::nearbyint(static_cast<float>(numbers[i]) * (0.5f / steps[i / 3])) + zeros[i / 3]));
  CHECK(codes(token, &scales) == want);
  CHECK(scales == std::vector<double>{static_cast<double>(steps[0]), static_cast<double>(steps[1])});
}

TEST_CASE("one and two threads give an integer network the same bits") {
  const int before = num_threads();
  const Tensor x = data();
  const std::vector<int32_t> labels = labels_of(x);
  for (const Between how : kAll) {
    std::vector<std::vector<uint32_t>> bits[2];
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      Net net(Compute::kIntegerOut, how);
      for (int i = 0; i < 2; ++i) {
        net.backward(x, labels);
        net.step(0.5f);
      }
      for (const Parameter* p : net.model->parameters()) bits[threads - 1].push_back(bits_of(p->master()));
    }
    CHECK(bits[0] == bits[1]);
  }
  set_num_threads(before);
}

TEST_CASE("layers that do not support int32 name dequantize") {
  const auto plan = [](const std::vector<LayerSpec>& specs) { return error_of([&] { make_sequential(specs, kIn); }); };
  const LayerSpec first = quantize_layer(quant_spec(dtypes::int8, "symmetric"));
  const LayerSpec linear = linear_layer(8, Compute::kIntegerOut, false);
  const auto behind = [&](const LayerSpec& layer) { return plan({first, linear, layer}); };
  for (const char* kind : {"tanh", "hardtanh", "sigmoid", "tensor_norm", "prelu", "shift", "dropout"}) {
    INFO(kind);
    LayerSpec layer = plain(kind);
    if (layer.kind == "dropout") layer.attributes["p"] = 0.5;
    const bool channels = layer.kind == "prelu" || layer.kind == "shift";
    CHECK(contains(behind(layer), channels ? "got int32. Put it before the quantizer, or dequantize before it"
                                           : "got int32. Put dequantize before it"));
  }
  CHECK(behind(plain("batch_norm")) == "");  // has exact statistics of int32
  CHECK(
      contains(behind(linear), "[linear] needs codes or fp32 input, got int32. Put quantize or dequantize before it."));
  CHECK(contains(
      behind(quantize_layer(quant_spec(dtypes::bint1, "binary"))),
      "of int32 needs a scheme whose scale is computed from a range (symmetric, absmax, affine) or is learned: got "
      "binary. Put dequantize before it."));
  CHECK(contains(behind(quantize_layer(quant_spec(dtypes::uint4, "minmax_offset"))), "of int32 has no real offset"));
  CHECK(contains(behind(quantize_layer(quant_spec(dtypes::uint4, "lsq_plus"))), "of int32 has no real offset"));
  LayerSpec divides = quantize_layer(quant_spec(dtypes::int8, "absmax"));
  divides.activation->spec.div = true;
  CHECK(contains(behind(divides), "of int32 multiplies by s_in / s_out and divides by no scale: got div"));
  LayerSpec channel = quantize_layer(quant_spec(dtypes::int8, "lsq"));
  channel.activation->spec.granularity = Granularity::channel(1);
  CHECK(contains(behind(channel),
                 "of int32 has scales per tensor, or per token computed from each batch: got channel(1)"));
  CHECK(contains(behind(quantize_layer(quant_spec(dtypes::int8, "symmetric", Rounding::kStochastic))),
                 "rounds to nearest, to all codes of int8: got stochastic"));
  LayerSpec ste = quantize_layer(quant_spec(dtypes::int8, "symmetric"));
  ste.activation->spec.ste = SteRule::kIdentity;
  CHECK(contains(behind(ste), "has the straight-through rule clip: got another"));
  LayerSpec observed = quantize_layer(quant_spec(dtypes::int8, "symmetric"));
  observed.activation->observer.emplace();
  observed.activation->observer->name = "mse";
  CHECK(contains(behind(observed), "is observed by min_max or moving_average: got mse"));
  CHECK(plan({first, linear, plain("relu"), plain("dequantize"), plain("tanh"), plain("dequantize")}) == "");
}

TEST_CASE("dequantize gives the values of codes and sums, and passes fp32 and gradients as they are") {
  const auto layer = make_layer(plain("dequantize"), 4);
  const Tensor x = random_tensor({3, 4}, dtypes::fp32, 1);
  CHECK(layer->forward(Var(x)).value().data() == x.data());
  const Tensor codes = quantize_dynamic(quant_spec(dtypes::int4, "affine"), x);
  CHECK(layer->forward(Var(codes)).value().elements() == codes.values());
  QuantParams per_channel;
  per_channel.scheme = "product";
  per_channel.granularity = Granularity::channel(1);
  per_channel.scale =
      std::make_shared<const Tensor>(Tensor::from_elements({4}, dtypes::fp32, std::vector<double>{1, 0.1, 0.25, 3}));
  const Tensor sums = Tensor::from_elements({1, 4}, dtypes::int32, std::vector<double>{16777217, 3, -2, 5})
                          .with_quant(std::make_shared<const QuantParams>(per_channel));
  AccumulateSink sink;
  Tape tape;
  const Var y = layer->forward(tape.leaf(sums, &sink, dtypes::fp32));
  CHECK(y.value().elements() == std::vector<double>{16777216, static_cast<double>(3 * 0.1f), -0.5, 15});
  const Tensor seed = random_tensor({1, 4}, dtypes::fp32, 2);
  tape.backward({y}, {seed});
  CHECK(bits_of(sink.grad()) == bits_of(seed));
  CHECK(contains(error_of([&] { layer->forward(Var(Tensor::zeros({1, 4}, dtypes::int64))); }), "got [1,4] int64"));
}

TEST_CASE("a quantize_gradient layer draws by its path and microbatch, and leaves the forward alone") {
  LayerSpec spec = plain("quantize_gradient");
  CHECK(contains(error_of([&] { make_layer(spec, 4); }), "needs a quantized gradient"));
  spec.activation = ActivationQuant{quant_spec(dtypes::int4, "absmax", Rounding::kStochastic)};
  auto model = make_sequential({spec, spec}, 4);
  StepState state;
  model->initialize("layers", state);
  const Tensor x = random_tensor({3, 4}, dtypes::fp32, 1), seed = random_tensor({3, 4}, dtypes::fp32, 2);
  const auto gradient = [&](Module& m) {
    AccumulateSink sink;
    Tape tape;
    const Var y = m.forward(tape.leaf(x, &sink, dtypes::fp32));
    CHECK(bits_of(y.value()) == bits_of(x));
    tape.backward({y}, {seed});
    return sink.grad().elements();
  };
  const auto first = gradient((*model)[0]);
  CHECK(first != seed.elements());
  CHECK(gradient((*model)[0]) == first);
  CHECK(gradient((*model)[1]) != first);
  state.microbatch = 1;
  CHECK(gradient((*model)[0]) != first);
  const RandomStream draws{state.seed, Purpose::kGradient, site_id("layers.0"), 0};
  QuantizeOptions how;
  how.sr = &draws;
  CHECK(first == quantize_dynamic(spec.activation->spec, seed, how).values());
  spec.activation = ActivationQuant{quant_spec(dtypes::int4, "lsq")};
  CHECK(contains(error_of([&] { make_layer(spec, 4); }),
                 "scheme lsq has a learned scale, which gradients do not support"));
}
