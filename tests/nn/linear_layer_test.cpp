// The linear layer: ways to compute, modes of the backward, frozen weights, plans and their errors.
#include <cmath>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec linear_layer(const QuantSpec& quant, int64_t out = 5) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes["out"] = out;
  spec.attributes["bias"] = false;
  spec.weight = weight_spec(quant);
  return spec;
}
LayerSpec quantize_layer(const QuantSpec& quant) {
  LayerSpec spec;
  spec.kind = "quantize";
  spec.activation = ActivationQuant{quant};
  return spec;
}
QuantSpec per(QuantSpec spec, const Granularity& granularity) {
  spec.granularity = granularity;
  return spec;
}
const QuantSpec kInt8 = quant_spec(dtypes::int8, "symmetric");

struct Gradients {
  Tensor y, gx, gw;
};
// One pass of a model [quantize, linear] or [linear] on x, seed g.
Gradients pass(Module& model, const Tensor& x, const Tensor& g) {
  AccumulateSink sink;
  Tape tape;
  const Var y = model.forward(tape.leaf(x, &sink, dtypes::fp32));
  tape.backward({y}, {g});
  Parameter* w = model.parameters()[0];
  Gradients out{y.value(), sink.grad(), {}};
  if (w->grad_sink().filled()) out.gw = w->grad().clone(MemoryKind::kActivation);
  for (Parameter* p : model.parameters()) p->grad_sink().clear();
  return out;
}

std::string plan_error(const std::vector<LayerSpec>& specs, int64_t features = 64) {
  return error_of([&] {
    auto model = make_sequential(specs, features);
    StepState state;
    model->initialize("layers", state);
    Form in;
    in.samples = 8;
    in.sample = {features};
    model->plan(in);
  });
}

}  // namespace

TEST_CASE("names of ways to compute") {
  CHECK(enum_name(Compute::kPacked) == "packed");
  CHECK(enum_name(Compute::kSimulated) == "simulated");
  CHECK(enum_name(Compute::kIntegerOut) == "integer_out");
}

TEST_CASE("packed, simulated and integer_out compute the same product") {
  const Tensor x = random_tensor({9, 64}, dtypes::fp32, 1), g = random_tensor({9, 5}, dtypes::fp32, 2);
  std::vector<Gradients> results;
  for (const Compute compute : {Compute::kPacked, Compute::kSimulated, Compute::kIntegerOut}) {
    LayerSpec linear = linear_layer(per(kInt8, Granularity::channel(0)));
    linear.product.compute = compute;
    auto model = make_sequential({quantize_layer(kInt8), linear}, 64);
    StepState state;
    model->initialize("layers", state);
    results.push_back(pass(*model, x, g));
  }
  CHECK(results[0].y.dtype() == dtypes::fp32);
  CHECK(results[1].y.dtype() == dtypes::fp32);
  REQUIRE(results[2].y.dtype() == dtypes::int32);
  NoGrad off;
  CHECK(bits_of(dequantize(Var(results[2].y)).value()) == bits_of(results[0].y));
  CHECK(distance(results[1].y, results[0].y) < 1e-5);
  CHECK(distance(results[1].gx, results[0].gx) < 1e-5);
  CHECK(distance(results[1].gw, results[0].gw) < 1e-5);
  CHECK(bits_of(results[2].gx) == bits_of(results[0].gx));
  CHECK(bits_of(results[2].gw) == bits_of(results[0].gw));
}

TEST_CASE("modes of the backward products are those of the op, drawn by path and microbatch") {
  const Tensor x = random_tensor({16, 64}, dtypes::fp32, 1), g = random_tensor({16, 5}, dtypes::fp32, 2);
  const auto make = [&](ProductMode mode, Rounding rounding, StepState& state) {
    LayerSpec linear = linear_layer(kInt8);
    linear.product.gx = linear.product.gw = mode;
    linear.product.rounding = rounding;
    auto model = make_sequential({quantize_layer(kInt8), linear}, 64);
    model->initialize("layers", state);
    return model;
  };
  StepState state;
  const Gradients exact = pass(*make(ProductMode::kFp32, Rounding::kStochastic, state), x, g);
  const Gradients bf16 = pass(*make(ProductMode::kBf16, Rounding::kStochastic, state), x, g);
  const auto stochastic = make(ProductMode::kInt8, Rounding::kStochastic, state);
  const auto nearest = make(ProductMode::kInt8, Rounding::kNearest, state);
  const Gradients first = pass(*stochastic, x, g), round = pass(*nearest, x, g);
  for (const Gradients* r : {&bf16, &first, &round}) {
    CHECK(bits_of(r->y) == bits_of(exact.y));
    CHECK(bits_of(r->gx) != bits_of(exact.gx));
    CHECK(bits_of(r->gw) != bits_of(exact.gw));
    CHECK(distance(r->gx, exact.gx) < 0.03);
    CHECK(distance(r->gw, exact.gw) < 0.03);
  }
  CHECK(bits_of(pass(*stochastic, x, g).gx) == bits_of(first.gx));
  state.microbatch = 1;
  CHECK(bits_of(pass(*stochastic, x, g).gx) != bits_of(first.gx));
  CHECK(bits_of(pass(*stochastic, x, g).gw) != bits_of(first.gw));
  CHECK(bits_of(pass(*nearest, x, g).gx) == bits_of(round.gx));
  const RandomStream draws{state.seed, Purpose::kGradient, site_id("layers.1"), 0};
  ProductModes modes;
  modes.gx = modes.gw = ProductMode::kInt8;
  modes.sr = &draws;
  AccumulateSink sx, sw;
  Tape tape;
  const Var q = tape.leaf(quantize_dynamic(kInt8, x), &sx, dtypes::fp32);
  const Var w = tape.leaf(stochastic->parameters()[0]->value(), &sw, dtypes::fp32);
  tape.backward({linear(q, w, {}, modes)}, {g});
  CHECK(bits_of(sw.grad()) == bits_of(first.gw));
}

TEST_CASE("frozen weights pass the gradient of x and get none") {
  LayerSpec linear = linear_layer(kInt8);
  const Tensor x = random_tensor({4, 64}, dtypes::fp32, 1), g = random_tensor({4, 5}, dtypes::fp32, 2);
  StepState state;
  auto free = make_sequential({quantize_layer(kInt8), linear}, 64);
  free->initialize("layers", state);
  linear.weight.frozen = true;
  auto frozen = make_sequential({quantize_layer(kInt8), linear}, 64);
  frozen->initialize("layers", state);
  const Gradients a = pass(*free, x, g), b = pass(*frozen, x, g);
  CHECK(bits_of(a.gx) == bits_of(b.gx));
  CHECK(a.gw.defined());
  CHECK_FALSE(b.gw.defined());
  CHECK_FALSE(frozen->parameters()[0]->grad_sink().filled());
}

TEST_CASE("a plan names the mode of a backward product that the operands do not have") {
  LayerSpec last = linear_layer(per(kInt8, Granularity::groups(32)));
  last.product.gx = ProductMode::kInt8;
  const LayerSpec first = linear_layer(kInt8, 64);
  CHECK(contains(plan_error({first, quantize_layer(kInt8), last}), "gx int8 needs per-channel scales; use bf16"));
  CHECK(plan_error({quantize_layer(kInt8), last}) == "");  // nothing before it trains
  last = linear_layer(per(kInt8, Granularity::groups(64)));
  last.product.gx = ProductMode::kInt8;
  CHECK(contains(plan_error({linear_layer(kInt8, 128), quantize_layer(kInt8), last}), "gx int8 needs per-channel"));
  last.product.per_group = true;
  CHECK(plan_error({linear_layer(kInt8, 128), quantize_layer(kInt8), last}) == "");
  LayerSpec data = linear_layer(kInt8);
  data.product.gw = ProductMode::kInt8;
  CHECK(contains(plan_error({data}), "gw int8 multiplies codes: got x fp32, expected an int, uint or sign dtype"));
  CHECK(contains(plan_error({quantize_layer(quant_spec(dtypes::uint4, "minmax_offset")), data}),
                 "gw int8 has no real offsets; use bf16: got x uint4 per tensor, expected integer zero points"));
  CHECK(plan_error({quantize_layer(per(quant_spec(dtypes::int8, "affine"), Granularity::token())), data}) == "");
  data.weight.frozen = true;
  CHECK(plan_error({data}) == "");
}

TEST_CASE("compute integer_out names the layer it needs before it") {
  LayerSpec linear = linear_layer(kInt8);
  linear.product.compute = Compute::kIntegerOut;
  CHECK(contains(plan_error({linear}),
                 "layer 0: [linear] compute: integer_out needs quantized input: got fp32. Put a "
                 "quantize layer of int, uint or sign codes before it"));
  CHECK(contains(plan_error({quantize_layer(quant_spec(dtypes::int8, "affine")), linear}),
                 "needs input without zero points: got int8"));
  CHECK(contains(plan_error({quantize_layer(quant_spec(dtypes::uint4, "minmax_offset")), linear}),
                 "needs input without offset"));
  CHECK(contains(plan_error({quantize_layer(per(kInt8, Granularity::groups(32))), linear}),
                 "with scales per tensor or token: got group("));
  linear.attributes["bias"] = true;
  CHECK(contains(plan_error({quantize_layer(per(kInt8, Granularity::token())), linear}),
                 "with a bias needs input with a scale per tensor: got token"));
  linear.attributes["bias"] = false;
  linear.weight.quant = per(kInt8, Granularity::channel(0));
  CHECK(contains(plan_error({quantize_layer(per(kInt8, Granularity::token())), linear}),
                 "got input per token and weights per channel(0). Set one of them to per tensor."));
  linear.weight.quant = quant_spec(dtypes::int8, "affine");
  CHECK(contains(plan_error({quantize_layer(kInt8), linear}),
                 "weights without zero points and offsets: got scheme affine"));
  linear.weight.quant = per(kInt8, Granularity::groups(32));
  CHECK(contains(plan_error({quantize_layer(kInt8), linear}), "per tensor or channel(0): got group("));
  linear.weight.quant.reset();
  CHECK(
      contains(plan_error({quantize_layer(kInt8), linear}), "compute: integer_out needs quantized weights: got fp32"));
  linear = linear_layer(kInt8);
  linear.product.compute = Compute::kIntegerOut;
  CHECK(contains(plan_error({quantize_layer(kInt8), linear}, 200000), "got 200000 features, expected at most 131071"));
  linear.product.gx = ProductMode::kInt8;
  CHECK(contains(plan_error({quantize_layer(kInt8), linear}),
                 "compute: integer_out has backward products in fp32: got gx int8, gw fp32. Use compute: packed"));
  linear.product.compute = Compute::kSimulated;
  CHECK(contains(plan_error({linear}), "compute: simulated has backward products in fp32"));
}

TEST_CASE("plans of integer layers give the granularity that forward gives") {
  struct Row {
    Granularity x, w, y;
  };
  const Row rows[] = {{Granularity::tensor(), Granularity::tensor(), Granularity::tensor()},
                      {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1)},
                      {Granularity::token(), Granularity::tensor(), Granularity::token()}};
  for (const Row& row : rows) {
    LayerSpec linear = linear_layer(per(kInt8, row.w));
    linear.product.compute = Compute::kIntegerOut;
    auto model = make_sequential({quantize_layer(per(kInt8, row.x)), linear}, 64);
    StepState state;
    model->initialize("layers", state);
    Form in;
    in.samples = 8;
    in.sample = {64};
    const Form out = model->plan(in);
    CHECK(out.dtype == dtypes::int32);
    REQUIRE(out.scales.has_value());
    CHECK(out.scales->granularity == row.y);
    const Tensor y = model->forward(Var(random_tensor({8, 64}, dtypes::fp32, 3))).value();
    CHECK(y.quant()->granularity == row.y);
  }
}

TEST_CASE("a plan attaches the layout of the row that forward runs, for every form of x") {
  const Tensor x = random_tensor({32, 256}, dtypes::fp32, 4);
  const LayerSpec forms[] = {quantize_layer(kInt8),
                             quantize_layer(per(kInt8, Granularity::token())),
                             quantize_layer(per(quant_spec(dtypes::int8, "affine"), Granularity::token())),
                             quantize_layer(quant_spec(dtypes::uint4, "minmax_offset")),
                             quantize_layer(per(kInt8, Granularity::groups(64))),
                             quantize_layer(quant_spec(dtypes::bint1, "binary"))};
  for (const LayerSpec& form : forms)
    for (const QuantSpec& w : {kInt8, per(kInt8, Granularity::groups(32)), quant_spec(dtypes::uint4, "minmax_offset"),
                               quant_spec(dtypes::bint1, "binary")}) {
      INFO(form.activation->spec.scheme << ' ' << form.activation->spec.granularity << ", " << w.scheme << ' '
                                        << w.granularity);
      auto model = make_sequential({form, linear_layer(w, 32)}, 256),
           plain = make_sequential({form, linear_layer(w, 32)}, 256);
      StepState state;
      model->initialize("layers", state);
      plain->initialize("layers", state);
      Form in;
      in.samples = 32;
      in.sample = {256};
      model->plan(in);
      const auto a = model->forward(Var(x)).value().elements(), b = plain->forward(Var(x)).value().elements();
      double worst = 0;
      for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i])));
      CHECK(worst < 1e-5);
    }
}
