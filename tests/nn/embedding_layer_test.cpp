#include "bitgrad/dtype/bf16.h"
#include "bitgrad/nn/layers.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec table(int64_t num, int64_t dim, const std::optional<QuantSpec>& quant = {}) {
  LayerSpec spec;
  spec.kind = "embedding";
  spec.attributes["num"] = num;
  spec.attributes["dim"] = dim;
  spec.weight.quant = quant;
  spec.weight.init = {"normal", 0, 1};
  return spec;
}

Form ids_form(int64_t rows, int64_t t, DType dtype = dtypes::int32) {
  Form in;
  in.samples = rows;
  in.sample = {t};
  in.dtype = dtype;
  return in;
}

}  // namespace

TEST_CASE("an embedding layer gives the values of its rows, for every dtype that weights have") {
  const Tensor ids = Tensor::from_elements({2, 3}, dtypes::int32, std::vector<double>{4, 0, 4, 2, 1, 3});
  for (const DType dtype : code_dtypes()) {
    INFO(dtype);
    const auto module = make_layer(table(5, 7, usual_weight_spec(dtype)), 3);
    StepState state;
    module->initialize("layers.0", state);
    const Parameter& weight = *module->parameters().at(0);
    CHECK(weight.path() == "layers.0.weight");
    CHECK(weight.shape() == Shape{5, 7});
    const std::vector<double> values = weight.value().values(), at = ids.elements();
    const Tensor y = module->forward(Var(ids)).value();
    REQUIRE(y.shape() == Shape{2, 21});
    for (size_t p = 0; p < at.size(); ++p)
      for (size_t c = 0; c < 7; ++c)
        CHECK(y.as<float>()[p * 7 + c] == static_cast<float>(values[static_cast<size_t>(at[p]) * 7 + c]));
  }
}

TEST_CASE("an embedding layer multiplies its rows by its scale, and its gradient too") {
  const Tensor ids = Tensor::from_elements({1, 3}, dtypes::int32, std::vector<double>{4, 0, 4});
  const auto rows = [&](double scale) {
    LayerSpec spec = table(5, 7);
    spec.attributes["scale"] = scale;
    const auto module = make_layer(spec, 3);
    StepState state;
    state.seed = 3;
    module->initialize("layers.0", state);
    return module->forward(Var(ids)).value().to_vector();
  };
  const std::vector<float> one = rows(1), scaled = rows(1.7);
  for (size_t i = 0; i < one.size(); ++i) CHECK(scaled[i] == one[i] * 1.7f);
}

TEST_CASE("an embedding layer plans t ids as t * dim values, and accepts ids only") {
  const auto module = make_layer(table(9, 4), 6);
  for (const DType dtype : {dtypes::int32, dtypes::int64}) {
    const Form out = module->plan(ids_form(8, 6, dtype));
    CHECK(out.samples == 8);
    CHECK(out.features() == 24);
    CHECK(out.dtype == dtypes::fp32);
    CHECK(!out.scales);
    CHECK(out.grad);
  }
  CHECK(error_of([&] { module->plan(ids_form(8, 6, dtypes::fp32)); }) ==
        "[embedding] needs ids, int32 or int64 without scales, got fp32. It must be the first layer of a model whose "
        "data "
        "are ids.");
  Form scaled = ids_form(8, 6);
  scaled.scales = {Granularity::tensor()};
  CHECK(contains(error_of([&] { module->plan(scaled); }), "needs ids, int32 or int64 without scales"));
  LayerSpec frozen = table(9, 4);
  frozen.weight.frozen = true;
  CHECK(!make_layer(frozen, 6)->plan(ids_form(8, 6)).grad);
  CHECK(contains(error_of([] { make_layer(table(-1, 4), 6); }),
                 "[embedding] num: got -1, expected a whole number in [0, 16777216]"));
  CHECK(contains(error_of([] { make_layer(table(3, 0), 6); }),
                 "[embedding] dim: got 0, expected a whole number in [1, 1048576]"));
}

TEST_CASE("the gradient of an embedding layer lands in its weight, in the dtype that the weight asks for") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    LayerSpec spec = table(4, 3, quant_spec(dtypes::int4, "symmetric"));
    spec.weight.grad = grad;
    const auto module = make_layer(spec, 2);
    StepState state;
    module->initialize("e", state);
    const Tensor ids = Tensor::from_elements({2, 2}, dtypes::int64, std::vector<double>{1, 3, 1, 1});
    const Tensor gy = random_tensor({2, 6}, dtypes::fp32, 11);
    {
      Tape tape;
      tape.backward({module->forward(Var(ids))}, {gy});
    }
    Parameter& weight = *module->parameters().at(0);
    REQUIRE(weight.grad_sink().filled());
    CHECK(weight.grad().dtype() == grad);
    const float* g = gy.as<float>();
    for (int64_t c = 0; c < 3; ++c) {
      const float one = (g[c] + g[6 + c]) + g[9 + c], three = g[3 + c];
      const auto rounded = [&](float x) { return grad == dtypes::bf16 ? bf16_to_float(bf16_from_float(x)) : x; };
      const std::vector<double> got = weight.grad().elements();
      const auto at = [&](int64_t r) { return static_cast<float>(got[static_cast<size_t>(r * 3 + c)]); };
      CHECK(at(0) == 0.0f);
      CHECK(at(1) == rounded(one));
      CHECK(at(2) == 0.0f);
      CHECK(at(3) == rounded(three));
    }
  }
}

TEST_CASE("An embedding without num has a row for each id that its input may hold") {
  const auto module = make_layer(table(0, 4));
  CHECK(error_of([&] { module->plan(ids_form(8, 6)); }) ==
        "[embedding] num: 0 means the number of different ids, which is not known for this input: set num");
  Form form = ids_form(8, 6);
  form.ids = 9;
  module->plan(form);
  CHECK(module->parameters().at(0)->shape() == Shape{9, 4});
  CHECK(module->spec()->attributes.integer("num") == 9);  // files of the model hold the number
  form.ids = 10;
  CHECK(contains(error_of([&] { module->plan(form); }), "num: got 9, expected at least 10"));
}
