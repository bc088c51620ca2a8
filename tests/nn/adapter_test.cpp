// Low-rank adapters: values and gradients against sums in double, what is frozen, what merging gives.
#include "bitgrad/nn/adapter.h"

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/layers.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kIn = 70, kOut = 9, kRows = 13;

LayerSpec linear(const std::optional<QuantSpec>& quant, bool bias = true, int64_t out = kOut) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes = {{"out", out}, {"bias", bias}};
  spec.weight.quant = quant;
  return spec;
}

struct Model {
  explicit Model(std::vector<LayerSpec> layers, const std::optional<AdapterRule>& rule = AdapterRule{},
                 DType values = dtypes::fp32) {
    ModelSpec spec;
    spec.input.sample = {kIn};
    spec.input.values = values;
    spec.layers = std::move(layers);
    model = make_model(spec);
    if (rule) add_adapters(*model, *rule);
    Form form = spec.input;
    form.samples = kRows;
    model->plan(form);
    state.seed = 7;
    state.training = true;
    model->initialize(kModelRoot, state);
  }
  LowRankAdapter& adapter(size_t i = 0) { return *adapted_layers(*model).at(i).slot->adapter(); }
  Var run(const Tensor& x) { return model->forward(Var(x)); }

  StepState state;
  std::shared_ptr<Sequential> model;
};

void draw(Parameter& p, uint64_t seed) { p.assign(random_tensor(p.shape(), dtypes::fp32, seed), 0); }

using Matrix = std::vector<double>;
// [n, m] = a [n, k] times b [k, m]; ta, tb: that one is stored the other way round.
Matrix times(const Matrix& a, const Matrix& b, int64_t n, int64_t k, int64_t m, bool ta = false, bool tb = false) {
  Matrix c(static_cast<size_t>(n * m));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[static_cast<size_t>(i * m + j)] +=
            a[static_cast<size_t>(ta ? l * n + i : i * k + l)] * b[static_cast<size_t>(tb ? j * k + l : l * m + j)];
  return c;
}

void check_close(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(got[i] - expected[i]));
  }
  CHECK(worst <= tolerance * largest);
}

QuantSpec groups(DType dtype, const std::string& scheme, int64_t group) {
  QuantSpec spec = quant_spec(dtype, scheme);
  spec.granularity = Granularity::groups(group);
  return spec;
}

const std::vector<std::optional<QuantSpec>> kHeld{
    std::nullopt, groups(dtypes::int4, "symmetric", 32), groups(dtypes::nf4, "codebook", 64),
    quant_spec(dtypes::ternary, "ternary"), quant_spec(dtypes::bint1, "binary")};

}  // namespace

TEST_CASE("an adapter begins as nothing: the model computes what it computed, to the bit") {
  const Tensor x = random_tensor({kRows, kIn}, dtypes::fp32, 3);
  for (const auto& held : kHeld) {
    INFO((held ? std::string(held->dtype.name()) : "fp32"));
    for (const DType values : {dtypes::fp32, dtypes::bf16}) {
      Model with({linear(held), linear(held, true, 5)}, AdapterRule{}, values);
      Model without({linear(held), linear(held, true, 5)}, std::nullopt, values);
      CHECK(with.run(x).value().elements() == without.run(x).value().elements());
      CHECK(adapted_layers(*with.model).size() == 2);
    }
  }
  Model drawn({linear(std::nullopt)}, AdapterRule{.adapter = {.rank = 40}});
  double most = 0;
  for (const double a : drawn.adapter().a().value().elements()) most = std::max(most, std::abs(a));
  CHECK(most <= 1 / std::sqrt(static_cast<double>(kIn)));
  CHECK(most > 0.9 / std::sqrt(static_cast<double>(kIn)));
}

TEST_CASE("values and gradients of adapters are the sums in double, over weights in every form") {
  constexpr int64_t kRank = 6;
  const double scale = 15.0 / kRank;
  for (const auto& held : kHeld) {
    INFO((held ? std::string(held->dtype.name()) : "fp32"));
    Model m({linear(held)}, AdapterRule{.layers = {"*"}, .adapter = {.rank = kRank, .alpha = 15.0}});
    LowRankAdapter& adapter = m.adapter();
    draw(adapter.a(), 21);
    draw(adapter.b(), 22);
    const Tensor x = random_tensor({kRows, kIn}, dtypes::fp32, 3), gy = random_tensor({kRows, kOut}, dtypes::fp32, 4);
    Parameter& weight = adapted_layers(*m.model)[0].slot->weight();
    const std::vector<double> codes = weight.value().elements();
    CHECK_FALSE((weight.low_bit() && weight.has_master()));
    Tape tape;
    AccumulateSink sink;
    const Var leaf = tape.leaf(x, &sink, dtypes::fp32);
    const Var y = m.model->forward(leaf);
    const Matrix w = weight.low_bit() ? weight.value().values() : weight.value().elements();
    const Matrix a = adapter.a().value().elements(), b = adapter.b().value().elements(), xs = x.elements(),
                 gs = gy.elements();
    const Matrix h = times(xs, a, kRows, kIn, kRank, false, true);
    Matrix expected = times(xs, w, kRows, kIn, kOut, false, true);
    const Matrix part = times(h, b, kRows, kRank, kOut, false, true);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += scale * part[i];
    check_close(y.value().elements(), expected, 1e-5);

    tape.backward({y}, {gy});
    Matrix gb = times(gs, h, kOut, kRows, kRank, true), gh = times(gs, b, kRows, kOut, kRank);
    for (double& v : gb) v *= scale;
    for (double& v : gh) v *= scale;
    check_close(adapter.b().grad().elements(), gb, 1e-5);
    check_close(adapter.a().grad().elements(), times(gh, xs, kRank, kRows, kIn, true), 1e-5);
    Matrix gx = times(gs, w, kRows, kOut, kIn);
    const Matrix low = times(gh, a, kRows, kRank, kIn);
    for (size_t i = 0; i < gx.size(); ++i) gx[i] += low[i];
    check_close(sink.grad().elements(), gx, 1e-5);
    CHECK_FALSE(weight.grad_sink().filled());
    CHECK(weight.value().elements() == codes);
  }
}

TEST_CASE("adapters are added where globs match, everything else is frozen except what train names") {
  LayerSpec norm;
  norm.kind = "batch_norm";
  LayerSpec relu;
  relu.kind = "relu";
  const std::vector<LayerSpec> layers{linear(std::nullopt), norm, relu, linear(std::nullopt, true, 5),
                                      linear(std::nullopt, true, 4)};
  Model m(layers, AdapterRule{.layers = {"layers.3", "layers.[04]"}, .adapter = {.rank = 2}, .train = {"layers.1"}});
  const std::vector<AdaptedLayer> adapted = adapted_layers(*m.model);
  REQUIRE(adapted.size() == 3);
  CHECK(adapted[0].layer == "layers.0");
  std::string trains;
  for (const Parameter* p : m.model->parameters())
    if (!p->spec().frozen) trains += p->path() + ' ';
  CHECK(trains ==
        "layers.0.adapter.a layers.0.adapter.b layers.1.gamma layers.1.beta layers.3.adapter.a layers.3.adapter.b "
        "layers.4.adapter.a layers.4.adapter.b ");
  const auto refused = [&](const AdapterRule& rule) { return error_of([&] { Model other(layers, rule); }); };
  CHECK(
      refused({.layers = {"layers.1"}}) ==
      "[adapters] layers: 'layers.1' matches no linear layer: these are layers.0, layers.3, layers.4. Globs match the "
      "whole path; * matches any characters.");
  CHECK(contains(refused({.layers = {}}), "layers: got no glob"));
  CHECK(contains(refused({.train = {"layers.7"}}), "train: 'layers.7' matches no layer with parameters"));
  CHECK(contains(refused({.adapter = {.rank = 0}}), "rank: got 0, expected 1 .. 65536"));
  CHECK(contains(refused({.adapter = {.alpha = 0}}), "alpha: got 0, expected above 0"));
  CHECK(contains(refused({.adapter = {.dropout = 1}}), "dropout: got 1, expected [0, 1)"));
  CHECK(contains(error_of([&] { add_adapters(*m.model, {}); }), "the model is initialized"));
  LayerSpec integer = linear(quant_spec(dtypes::int8, "symmetric"), false);
  integer.product.compute = Compute::kIntegerOut;
  LayerSpec codes;
  codes.kind = "quantize";
  codes.activation = ActivationQuant{quant_spec(dtypes::int8, "symmetric")};
  CHECK(contains(error_of([&] { Model other({codes, integer}); }), "does not support adapters"));
}

TEST_CASE("learned steps of activations train beside adapters") {
  LayerSpec quantize;
  quantize.kind = "quantize";
  quantize.activation = ActivationQuant{quant_spec(dtypes::int4, "lsq")};
  const Model m({quantize, linear(std::nullopt)});
  std::string trains;
  for (const Parameter* p : m.model->parameters())
    if (!p->spec().frozen) trains += p->path() + ' ';
  CHECK(trains == "layers.0.step layers.1.adapter.a layers.1.adapter.b ");
}

TEST_CASE("dropout of adapters is drawn in training alone") {
  Model m({linear(std::nullopt)}, AdapterRule{.adapter = {.rank = 3, .alpha = 3, .dropout = 0.5}});
  Model plain({linear(std::nullopt)}, AdapterRule{.adapter = {.rank = 3, .alpha = 3}});
  for (Model* each : {&m, &plain}) draw(each->adapter().a(), 1), draw(each->adapter().b(), 2);
  const Tensor x = random_tensor({kRows, kIn}, dtypes::fp32, 3);
  CHECK(m.run(x).value().elements() != plain.run(x).value().elements());
  m.state.training = false;
  CHECK(m.run(x).value().elements() == plain.run(x).value().elements());
}

TEST_CASE("merging gives the weight and its adapter as one weight") {
  const Tensor x = random_tensor({kRows, kIn}, dtypes::fp32, 3);
  for (const auto& held : kHeld)
    for (const bool to_float : {true, false}) {
      INFO((held ? std::string(held->dtype.name()) : "fp32") << ", to float " << to_float);
      Model m({linear(held)}, AdapterRule{.adapter = {.rank = 4, .alpha = 2}});
      draw(m.adapter().a(), 1);
      draw(m.adapter().b(), 2);
      const Quantizable& slot = *adapted_layers(*m.model)[0].slot;
      const std::vector<double> before = m.run(x).value().elements();
      Tensor whole = Tensor::from_elements({kOut, kIn}, dtypes::fp32,
                                           held ? slot.weight().value().values() : slot.weight().value().elements());
      m.adapter().add_to(whole);
      merge_adapters(*m.model, to_float);
      CHECK(adapted_layers(*m.model).empty());
      CHECK(m.model->parameters().size() == 2);
      if (to_float || !held) {
        CHECK(slot.weight().value().elements() == whole.elements());
        check_close(m.run(x).value().elements(), before, 1e-5);
      } else {
        CHECK(slot.weight().spec().dtype() == held->dtype);
        Model fresh({linear(held)}, std::nullopt);
        Parameter& weight = fresh.model->quantizables()[0]->weight();
        weight.assign(whole, 0);
        CHECK(slot.weight().value().values() == weight.value().values());
      }
      CHECK(contains(error_of([&] { merge_adapters(*m.model, false); }), "the model has no adapters"));
    }
}

TEST_CASE("a layer that adapters.train names trains itself, in full, and gets no adapter") {
  AdapterRule rule;
  rule.train = {"layers.1"};
  Model trained({linear(std::nullopt), linear(std::nullopt)}, rule);
  REQUIRE(adapted_layers(*trained.model).size() == 1);
  CHECK(adapted_layers(*trained.model)[0].layer == "layers.0");
  for (const auto& [path, parameter] : trained.model->parameters_at(kModelRoot))
    CHECK(parameter->spec().frozen == (path == "layers.0.weight" || path == "layers.0.bias"));
  rule.train = {"layers.1.bias"};
  CHECK(adapted_layers(*Model({linear(std::nullopt), linear(std::nullopt)}, rule).model).size() == 2);
  rule.layers = rule.train = {"layers.1"};
  CHECK(contains(error_of([&] {
                   Model({linear(std::nullopt), linear(std::nullopt)}, rule);
                 }),
                 "each of layers.1 trains by adapters.train: no layer is left for an adapter"));
}

TEST_CASE("adapters of a shared weight, and a choice of what is frozen, are errors") {
  LayerSpec head, back;
  head.kind = "head";
  head.attributes = {{"tie", std::string("layers.0")}, {"bias", true}};
  back = linear(std::nullopt, true, kIn);
  const std::vector<LayerSpec> layers{linear(std::nullopt), back, head};
  const auto refused = [&](const AdapterRule& rule) { return error_of([&] { Model other(layers, rule); }); };
  CHECK(
      refused({.layers = {"layers.0"}}) ==
      "[adapters] layers: 'layers.0' shares its weight with 'layers.2', which has no adapter: merged, it would change "
      "both. Leave it out, or train it by adapters.train");
  CHECK(
      refused({.layers = {"layers.1"}, .train = {"layers.2"}}) ==
      "[adapters] train: 'layers.2' names 'layers.2', which has no weight of its own, but that of 'layers.0', which is "
      "frozen. Name 'layers.0' too");
  CHECK(refused({.layers = {"layers.1"}, .train = {"layers.2", "layers.0"}}) == "");
  CHECK(refused({.layers = {"layers.1"}, .train = {"layers.2.bias"}}) == "");

  LayerSpec held = linear(std::nullopt, false);
  held.weight.frozen = true;
  CHECK(
      error_of([&] {
        Model other({held, linear(std::nullopt)}, AdapterRule{.layers = {"layers.1"}, .train = {"layers.0"}});
      }) ==
      "[adapters] train: all that 'layers.0' matches is frozen. Take it out of train.frozen (weights: {frozen: true}) "
      "or of adapters.train");
}
