// layer_norm, rms_norm and the gated layers between other layers.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "nn/bf16_layers.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Form rows(const Shape& sample, DType dtype = dtypes::fp32) {
  Form in;
  in.samples = 2;
  in.sample = sample;
  in.dtype = dtype;
  return in;
}

}  // namespace

TEST_CASE("layer norms begin as the plain norms, with a gamma, and a beta where there is one") {
  const Tensor x = random_tensor({4, 3, 17}, dtypes::fp32, 1, -2, 3), one = Tensor::full({17}, dtypes::fp32, 1);
  const Tensor zero = Tensor::zeros({17}, dtypes::fp32);
  const auto parameters = [](const std::string& kind, const Attributes& keys) {
    return run(layer(kind, keys), random_tensor({2, 5}, dtypes::fp32, 1), dtypes::fp32, true).grads.size();
  };
  CHECK(parameters("layer_norm", {}) == 2);
  CHECK(parameters("layer_norm", {{"bias", false}}) == 1);
  CHECK(parameters("rms_norm", {}) == 1);
  for (const bool training : {true, false}) {
    CHECK(bits_of(run(layer("layer_norm"), x, dtypes::fp32, training).y) ==
          bits_of(layer_norm(Var(x), Var(one), Var(zero)).value()));
    CHECK(bits_of(run(layer("layer_norm", {{"bias", false}, {"eps", 0.25}}), x, dtypes::fp32, training).y) ==
          bits_of(layer_norm(Var(x), Var(one), {}, 0.25f).value()));
    CHECK(bits_of(run(layer("rms_norm", {{"eps", 1e-3}}), x, dtypes::fp32, training).y) ==
          bits_of(rms_norm(Var(x), Var(one), 1e-3f).value()));
  }
}

TEST_CASE("a row of a layer norm depends on itself alone") {
  const Tensor x = random_tensor({5, 33}, dtypes::fp32, 1);
  for (const std::string kind : {"layer_norm", "rms_norm"}) {
    const Tensor all = run(layer(kind), x, dtypes::fp32, true).y;
    for (int64_t r = 0; r < 5; ++r) {
      const Tensor row = run(layer(kind), x.row_slice(r, r + 1), dtypes::fp32, true).y;
      CHECK(bits_of(row) == bits_of(all.row_slice(r, r + 1).clone(MemoryKind::kActivation)));
    }
  }
}

TEST_CASE("swiglu, geglu, geglu_tanh, reglu and relu2_glu halve the last axis and keep the others") {
  const Tensor x = random_tensor({2, 3, 34}, dtypes::fp32, 1, -3, 3);
  const std::vector<std::pair<std::string, UnaryOp>> kinds = {{"swiglu", UnaryOp::silu},
                                                              {"geglu", UnaryOp::gelu},
                                                              {"geglu_tanh", UnaryOp::gelu_tanh},
                                                              {"reglu", UnaryOp::relu},
                                                              {"relu2_glu", UnaryOp::relu2}};
  for (const auto& [kind, f] : kinds) {
    const Result got = run(layer(kind), x, dtypes::fp32, true);
    CHECK(got.y.shape() == Shape{2, 3, 17});
    CHECK(bits_of(got.y) == bits_of(mul(unary(f, slice(Var(x), -1, 0, 17)), slice(Var(x), -1, 17, 34)).value()));
    CHECK(got.gx.shape() == x.shape());
    const Result narrow = run(layer(kind), rounded(x), dtypes::bf16, true);
    CHECK(bits_of(narrow.y) == bits_of(rounded(run(layer(kind), wide(rounded(x)), dtypes::fp32, true).y)));
    CHECK(make_layer(layer(kind))->plan(rows({3, 34})).sample == Shape{3, 17});
    CHECK(contains(error_of([&, name = kind] {
                     make_layer(layer(name))->plan(rows({3, 5}));
                   }),
                   "expects gate and up concatenated: got 5 features, expected an even number"));
    CHECK(contains(error_of([&, name = kind] { make_layer(layer(name))->plan(rows({4}, dtypes::int8)); }),
                   "needs fp32 input, got int8"));
  }
  for (const std::string kind : {"layer_norm", "rms_norm"})
    CHECK(contains(error_of([&] { make_layer(layer(kind))->plan(rows({4}, dtypes::int32)); }),
                   "needs fp32 input, got int32. Put dequantize before it"));
}
