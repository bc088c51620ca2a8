// The activation quantizer as a layer: rounding in training and evaluation, and the dtype of its gradient.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec stochastic_int4(DType grad = dtypes::fp32) {
  LayerSpec spec;
  spec.kind = "quantize";
  spec.activation.emplace();
  spec.activation->spec.dtype = dtypes::int4;
  spec.activation->spec.scheme = "symmetric";
  spec.activation->spec.rounding = Rounding::kStochastic;
  spec.activation->grad = grad;
  return spec;
}

std::vector<double> codes(Module& layer, const Tensor& x) {
  NoGrad off;
  return layer.forward(x).value().elements();
}

}  // namespace

TEST_CASE("stochastic activations draw anew each microbatch in training, and round to nearest in evaluation") {
  const auto layer = make_layer(stochastic_int4(), 50);
  StepState state;
  layer->initialize("layers.0", state);
  const Tensor x = random_tensor({8, 50}, dtypes::fp32, 1);
  const auto first = codes(*layer, x);
  CHECK(codes(*layer, x) == first);
  state.microbatch = 1;
  CHECK(codes(*layer, x) != first);
  state.training = false;
  const auto nearest = codes(*layer, x);
  QuantSpec plain = stochastic_int4().activation->spec;
  plain.rounding = Rounding::kNearest;
  CHECK(nearest == quantize_dynamic(plain, x).elements());
  state.microbatch = 2;
  CHECK(codes(*layer, x) == nearest);
}

TEST_CASE("the gradient that leaves an activation quantizer has the dtype that was asked for") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    const auto layer = make_layer(stochastic_int4(grad), 6);
    StepState state;
    layer->initialize("layers.0", state);
    Tape tape;
    AccumulateSink sink;
    const Var leaf = tape.leaf(random_tensor({3, 6}, dtypes::fp32, 2), &sink, dtypes::fp32);
    const Var inner = hardtanh(leaf);
    CHECK(inner.grad_dtype() == dtypes::fp32);
    layer->forward(inner);
    CHECK(inner.grad_dtype() == grad);
  }
}

TEST_CASE("a plan refuses dropout behind codes that have no 0") {
  LayerSpec quantize;
  quantize.kind = "quantize";
  quantize.activation.emplace();
  quantize.activation->spec.dtype = dtypes::uint4;
  quantize.activation->spec.scheme = "minmax_offset";
  LayerSpec dropout;
  dropout.kind = "dropout";
  dropout.attributes["p"] = 0.5;
  CHECK(contains(error_of([&] {
                   make_sequential({quantize, dropout}, 5);
                 }),
                 "uint4 with a real offset has no exact code for value 0. Put dropout before the quantizer"));
}

TEST_CASE("a plan refuses dropout behind zero points of columns, whose dropped elements have no one code") {
  LayerSpec quantize;
  quantize.kind = "quantize";
  quantize.activation.emplace();
  quantize.activation->spec.dtype = dtypes::uint8;
  quantize.activation->spec.scheme = "affine";
  LayerSpec dropout;
  dropout.kind = "dropout";
  dropout.attributes["p"] = 0.5;
  for (const Granularity& g : {Granularity::tensor(), Granularity::token()}) {
    quantize.activation->spec.granularity = g;
    CHECK_NOTHROW(make_sequential({quantize, dropout}, 5));
  }
  quantize.activation->spec.granularity = Granularity::channel(1);
  CHECK(contains(error_of([&] {
                   make_sequential({quantize, dropout}, 5);
                 }),
                 "uint8 with zero points per channel(1): expected per tensor or token"));
}
