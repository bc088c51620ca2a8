// Containers: layers within layers, their places, paths, forms and gradients; weights that two layers share.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bitgrad/base/memory.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec plain(const std::string& kind) {
  LayerSpec spec;
  spec.kind = kind;
  return spec;
}
LayerSpec linear(int64_t out, bool bias = true) {
  LayerSpec spec = plain("linear");
  spec.attributes = {{"out", out}, {"bias", bias}};
  return spec;
}
LayerSpec residual(std::vector<LayerSpec> body, std::vector<LayerSpec> shortcut = {}) {
  LayerSpec spec = plain("residual");
  spec.lists = {{"body", std::move(body)}};
  if (!shortcut.empty()) spec.lists.push_back({"shortcut", std::move(shortcut)});
  return spec;
}
LayerSpec of_list(const std::string& kind, std::vector<LayerSpec> layers) {
  LayerSpec spec = plain(kind);
  spec.lists = {{"layers", std::move(layers)}};
  return spec;
}
LayerSpec repeat(int64_t times, std::vector<LayerSpec> layers) {
  LayerSpec spec = of_list("repeat", std::move(layers));
  spec.attributes["times"] = times;
  return spec;
}

// Its layers in turn.
LayerSpec cycle(int64_t times, std::vector<LayerSpec> layers) {
  LayerSpec spec = repeat(times, std::move(layers));
  spec.attributes["cycle"] = true;
  return spec;
}

std::shared_ptr<Sequential> started(const std::vector<LayerSpec>& specs, int64_t features, StepState& state) {
  auto model = make_sequential(specs, features);
  state.seed = 7;
  model->initialize(kModelRoot, state);
  return model;
}
std::vector<std::string> paths(Module& model) {
  std::vector<std::string> out;
  for (const Parameter* p : model.parameters()) out.push_back(p->path());
  return out;
}
Parameter& parameter(Module& model, const std::string& path) {
  for (Parameter* p : model.parameters())
    if (p->path() == path) return *p;
  throw Error("no parameter " + path);
}
// x W^T + b in double.
std::vector<double> product(const std::vector<double>& x, int64_t rows, const Parameter& w, const Parameter* b) {
  const std::vector<double> m = w.value().values();
  const int64_t out = w.shape().rows(), in = w.shape().cols();
  std::vector<double> y(static_cast<size_t>(rows * out));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o) {
      double sum = b != nullptr ? b->value().values()[static_cast<size_t>(o)] : 0;
      for (int64_t i = 0; i < in; ++i) sum += x[static_cast<size_t>(r * in + i)] * m[static_cast<size_t>(o * in + i)];
      y[static_cast<size_t>(r * out + o)] = sum;
    }
  return y;
}

}  // namespace

TEST_CASE("a residual adds its input, or a shortcut, to its body") {
  for (const bool with_shortcut : {false, true}) {
    StepState state;
    const auto model = started({residual({linear(6), plain("relu"), linear(with_shortcut ? 4 : 5)},
                                         with_shortcut ? std::vector{linear(4, false)} : std::vector<LayerSpec>())},
                               5, state);
    std::vector<std::string> wanted{"layers.0.body.0.weight", "layers.0.body.0.bias", "layers.0.body.2.weight",
                                    "layers.0.body.2.bias"};
    if (with_shortcut) wanted.emplace_back("layers.0.shortcut.0.weight");
    CHECK(paths(*model) == wanted);
    const Tensor x = random_tensor({3, 5}, dtypes::fp32, 1);
    std::vector<double> h = product(x.values(), 3, parameter(*model, wanted[0]), &parameter(*model, wanted[1]));
    for (double& v : h) v = std::max(v, 0.0);
    std::vector<double> y = product(h, 3, parameter(*model, wanted[2]), &parameter(*model, wanted[3]));
    const std::vector<double> other =
        with_shortcut ? product(x.values(), 3, parameter(*model, wanted[4]), nullptr) : x.values();
    const std::vector<double> found = (*model)(Var(x)).value().values();
    REQUIRE(found.size() == y.size());
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::abs(found[i] - (y[i] + other[i])) < 1e-5);
  }
}

TEST_CASE("a residual's gradients reach body, shortcut and input") {
  StepState state;
  const auto model = started({residual({linear(4, false)}, {linear(4, false)}), linear(2, false)}, 3, state);
  const Tensor x = random_tensor({5, 3}, dtypes::fp32, 2), gy = random_tensor({5, 2}, dtypes::fp32, 3);
  {
    Tape tape;
    tape.backward({(*model)(Var(x))}, {gy});
  }
  // Both read the same x and get the same gradient: gy V, V being the weight behind them.
  Parameter &body = parameter(*model, "layers.0.body.0.weight"),
            &shortcut = parameter(*model, "layers.0.shortcut.0.weight");
  REQUIRE(body.grad_sink().filled());
  CHECK(body.grad().elements() == shortcut.grad().elements());
  const std::vector<double> v = parameter(*model, "layers.1.weight").value().values(), g = gy.values(), xs = x.values(),
                            found = body.grad().values();
  for (int64_t o = 0; o < 4; ++o)
    for (int64_t i = 0; i < 3; ++i) {
      double sum = 0;
      for (int64_t r = 0; r < 5; ++r)
        for (int64_t k = 0; k < 2; ++k)
          sum += g[static_cast<size_t>(r * 2 + k)] * v[static_cast<size_t>(k * 4 + o)] *
                 xs[static_cast<size_t>(r * 3 + i)];
      CHECK(std::abs(found[static_cast<size_t>(o * 3 + i)] - sum) < 1e-5);
    }
}

TEST_CASE("a residual and the hardtanh behind it are one pass with the bits of the two layers one after the other") {
  // 16 and 64 features: the norm before the sum is a part of that pass.
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>(33, 5), {64, 16}, {32, 64}})
    for (int i = 0; i < 4; ++i) {
      const bool with_shortcut = i % 2 == 1, training = i < 2;
      INFO(width << ' ' << with_shortcut << ' ' << training);
      const std::vector<LayerSpec> specs{
          linear(width),
          residual({linear(width), plain("batch_norm")},
                   with_shortcut ? std::vector{linear(width)} : std::vector<LayerSpec>()),
          plain("hardtanh"), residual({plain("tanh")}), plain("relu")};
      const Tensor x = random_tensor({rows, width}, dtypes::fp32, 2, -2, 2),
                   gy = random_tensor({rows, width}, dtypes::fp32, 3);
      std::vector<std::vector<double>> found[2];
      int64_t saved[2] = {};
      for (const bool hooked : {false, true}) {  // layers that are looked at run one after the other
        StepState state;
        const auto model = started(specs, width, state);
        state.training = training;
        int calls = 0;
        if (hooked) state.on_forward = [&](const std::string&, const Tensor&, const Tensor&) { ++calls; };
        auto& out = found[hooked];
        if (!training) {
          const NoGrad no_grad;
          out.push_back((*model)(Var(x)).value().values());
          continue;
        }
        Tape tape;
        const Var y = (*model)(Var(x));
        saved[hooked] = memory_now()[MemoryKind::kSaved];
        CHECK((calls > 0) == hooked);
        out.push_back(y.value().values());
        tape.backward({y}, {gy});
        for (const Parameter* p : model->parameters()) out.push_back(p->grad().values());
      }
      CHECK(found[0] == found[1]);
      // A device runs the layers one after the other in any case.
      CHECK((saved[1] - saved[0] >= rows * width * 3) == (training && !runs_on_device()));
    }
}

TEST_CASE("branches are joined side by side, added or multiplied; an empty one is the input") {
  const Tensor x = random_tensor({3, 4}, dtypes::fp32, 5);
  for (const std::string join : {"concat", "add", "multiply"}) {
    INFO(join);
    LayerSpec branches = plain("branches");
    branches.attributes["join"] = join;
    branches.lists = {
        {"0", {}}, {"1", {linear(4, false)}}, {"2", {linear(join == "concat" ? 2 : 4, false), plain("tanh")}}};
    StepState state;
    const auto model = started({branches}, 4, state);
    CHECK(paths(*model) == std::vector<std::string>{"layers.0.1.0.weight", "layers.0.2.0.weight"});
    const std::vector<double> a = x.values(), b = product(a, 3, parameter(*model, "layers.0.1.0.weight"), nullptr);
    std::vector<double> c = product(a, 3, parameter(*model, "layers.0.2.0.weight"), nullptr);
    for (double& v : c) v = std::tanh(v);
    const Tensor y = (*model)(Var(x)).value();
    Form in;
    in.sample = {4};
    CHECK(model->plan(in).features() == y.cols());
    REQUIRE(y.shape() == Shape{3, join == "concat" ? 10 : 4});
    for (size_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < 4; ++i) {
        const double p = a[r * 4 + i], q = b[r * 4 + i];
        if (join == "concat") {
          CHECK(y.as<float>()[r * 10 + i] == static_cast<float>(p));
          CHECK(std::abs(y.as<float>()[r * 10 + 4 + i] - q) < 1e-5);
          if (i < 2) CHECK(std::abs(y.as<float>()[r * 10 + 8 + i] - c[r * 2 + i]) < 1e-5);
        } else {
          const double t = c[r * 4 + i];
          CHECK(std::abs(y.as<float>()[r * 4 + i] - (join == "add" ? p + q + t : p * q * t)) < 1e-5);
        }
      }
  }
}

TEST_CASE("branches that do not join are reported by name") {
  LayerSpec branches = plain("branches");
  branches.attributes["join"] = "add";
  branches.lists = {{"0", {linear(4)}}, {"1", {linear(5)}}};
  CHECK(error_of([&] { make_sequential({branches}, 3); }) ==
        "layer 0: [branches] branch 1 gives [n,5] fp32, branch 0 [n,4] fp32: expected one shape");
  branches.lists = {{"0", {linear(4)}}};
  CHECK(error_of([&] { make_sequential({branches}, 3); }) ==
        "layer 0: [branches] layers: got 1 lists, expected at least 2");
  branches.attributes["join"] = "sum";
  CHECK(error_of([&] { make_sequential({branches}, 3); }) ==
        "layer 0: [branches] join: got sum, expected one of concat, add, multiply");
}

TEST_CASE("a repetition makes its layers anew each round, with draws of their own") {
  StepState state;
  const auto model = started({linear(4), repeat(3, {linear(4), plain("relu")})}, 6, state);
  CHECK(paths(*model) == std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.1.0.0.weight",
                                                  "layers.1.0.0.bias", "layers.1.1.0.weight", "layers.1.1.0.bias",
                                                  "layers.1.2.0.weight", "layers.1.2.0.bias"});
  std::set<std::vector<uint32_t>> first;
  for (const char* path : {"layers.1.0.0.weight", "layers.1.1.0.weight", "layers.1.2.0.weight"})
    first.insert(bits_of(parameter(*model, path).value()));
  CHECK(first.size() == 3);
}

TEST_CASE("layers within containers give the bits of the same layers in a row") {
  const std::vector<LayerSpec> flat{linear(8), plain("relu"), linear(3)};
  const std::vector<LayerSpec> nested{of_list("sequence", {linear(8), of_list("sequence", {plain("relu")})}),
                                      linear(3)};
  StepState a, b;
  const auto one = started(flat, 5, a), two = started(nested, 5, b);
  CHECK(paths(*two)[0] == "layers.0.0.weight");
  for (size_t i = 0; i < one->parameters().size(); ++i)
    two->parameters()[i]->assign(dequantized(*one->parameters()[i]), 0);
  const Var x = random_tensor({4, 5}, dtypes::fp32, 3);
  CHECK(bits_of((*one)(x).value()) == bits_of((*two)(x).value()));
}

TEST_CASE("layers that do not fit within a container are reported at their place") {
  CHECK(error_of([] { make_sequential({residual({linear(6)})}, 5); }) ==
        "layer 0: [residual] body and x are added: got [n,6] fp32 and [n,5] fp32, expected one shape of fp32");
  CHECK(
      error_of([] { make_sequential({residual({linear(6)}, {linear(4)})}, 5); }) ==
      "layer 0: [residual] body and the shortcut are added: got [n,6] fp32 and [n,4] fp32, expected one shape of fp32");
  LayerSpec quantize = plain("quantize");
  quantize.activation.emplace();
  quantize.activation->spec.dtype = dtypes::int8;
  quantize.activation->spec.scheme = "absmax";
  CHECK(error_of([&] {
          make_sequential({linear(5), residual({linear(5), quantize, plain("tanh")})}, 5);
        }) ==
        "layer 1.body.2: [tanh] needs fp32 input, got int8. Put it before the quantizer, or dequantize before it");
  CHECK(error_of([&] {
          make_sequential({repeat(2, {linear(5), quantize, plain("tanh")})}, 5);
        }) == "layer 0.0.2: [tanh] needs fp32 input, got int8. Put it before the quantizer, or dequantize before it");
  CHECK(error_of([] { make_sequential({residual({})}, 5); }) ==
        "layer 0: [residual] body: got no layers, expected at least one");
  CHECK(error_of([] { make_sequential({repeat(0, {linear(5)})}, 5); }) ==
        "layer 0: [repeat] times: got 0, expected a whole number in [1, 4096]");
  CHECK(contains(error_of([] { make_sequential({of_list("sequence", {plain("linaer")})}, 5); }),
                 "layer 0.0: [layer] unknown layer 'linaer'. Did you mean 'linear'?"));
}

TEST_CASE("errors of a forward pass name the place within containers") {
  StepState state;
  const auto model = started({repeat(2, {residual({linear(5), plain("relu")})})}, 5, state);
  CHECK(error_of([&] {
          (*model)(Var(Tensor::zeros({2, 4}, dtypes::fp32)));
        }).rfind("layer 0.0.0.body.0: [linear] x has 4 features, w expects 5", 0) == 0);
}

TEST_CASE("recipes and rules reach layers within containers, and layouts are planned there") {
  StepState state;
  const auto model = make_sequential({residual({linear(8), plain("relu"), linear(6)}), repeat(2, {linear(6)})}, 6);
  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  spec.rules = {{"layers.1.*", find_recipe("int4wo")}, {"layers.0.body.2", find_recipe("w1a1")}};
  prepare(*model, spec);
  model->initialize(kModelRoot, state);
  std::map<std::string, std::string> recipes;
  for (const LayerSummary& row : summarize(*model)) recipes[row.layer] = row.recipe;
  CHECK(recipes == std::map<std::string, std::string>{{"layers.0.body.0", "w8a8"},
                                                      {"layers.0.body.2", "w1a1"},
                                                      {"layers.1.0.0", "int4wo"},
                                                      {"layers.1.1.0", "int4wo"}});
  Form in;
  in.sample = {6};
  in.samples = 4;
  CHECK(model->plan(in).sample == Shape{6});
  CHECK((*model)(Var(random_tensor({4, 6}, dtypes::fp32, 9))).shape() == Shape{4, 6});
}

TEST_CASE("a head multiplies by the table of an embedding: one parameter, the sum of both gradients") {
  const auto specs = [](bool tied) {
    LayerSpec table = plain("embedding"), head = plain("head");
    table.attributes = {{"num", 7}, {"dim", 4}};
    head.attributes["tie"] = "layers.0";
    return std::vector<LayerSpec>{table, plain("tanh"), tied ? head : linear(7, false)};
  };
  ModelSpec tied, apart;
  tied.input.sample = apart.input.sample = {1};
  tied.input.dtype = apart.input.dtype = dtypes::int32;
  tied.layers = specs(true);
  apart.layers = specs(false);
  StepState a, b;
  const auto one = make_model(tied), two = make_model(apart);
  one->initialize(kModelRoot, a);
  two->initialize(kModelRoot, b);
  CHECK(paths(*one) == std::vector<std::string>{"layers.0.weight"});
  REQUIRE(paths(*two) == std::vector<std::string>{"layers.0.weight", "layers.2.weight"});
  const Tensor table = dequantized(*one->parameters()[0]);
  for (Parameter* p : two->parameters()) p->assign(table, 0);
  const Tensor ids = Tensor::from_elements({3, 1}, dtypes::int32, std::vector<double>{2, 6, 2}),
               gy = random_tensor({3, 7}, dtypes::fp32, 4);
  const auto run = [&](Sequential& model) {
    Tape tape;
    const Var y = model(Var(ids));
    tape.backward({y}, {gy});
    return bits_of(y.value());
  };
  CHECK(run(*one) == run(*two));
  const std::vector<double> sum = one->parameters()[0]->grad().values(),
                            of_table = two->parameters()[0]->grad().values(),
                            of_head = two->parameters()[1]->grad().values();
  for (size_t i = 0; i < sum.size(); ++i) CHECK(std::abs(sum[i] - (of_table[i] + of_head[i])) < 1e-6);
  // What holds the table holds the head, and another weight for it is an error; its input is its own.
  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  spec.last = find_recipe("w4a8");
  CHECK(contains(error_of([&] { prepare(*one, spec); }), "quant.last falls on 'layers.2', which has no weight"));
  spec.last->weight.reset();
  prepare(*one, spec);
  const std::vector<LayerSummary> rows = summarize(*one);
  REQUIRE(rows.size() == 2);
  CHECK(one->parameters()[0]->spec().dtype() == dtypes::int8);
  CHECK(rows[1].bytes == 0);
  CHECK((*one)(Var(ids)).shape() == Shape{3, 7});
}

TEST_CASE("a head reports when nothing is shared") {
  LayerSpec head = plain("head");
  head.attributes["tie"] = "layers.5";
  CHECK(error_of([&] {
          make_sequential({linear(4), head}, 4);
        }) ==
        "layer 1: [head] tie: got 'layers.5', expected the path of a layer that owns exactly one weight, such as "
        "layers.0 of an embedding");
  head.attributes["tie"] = "layers.0";
  CHECK(error_of([&] {
          make_sequential({linear(4), linear(3), head}, 5);
        }) == "layer 2: [linear] x has 3 features, w expects 5");
  CHECK(contains(error_of([&] { make_layer(head, 4); }), "shares the weight of 'layers.0'"));
}

TEST_CASE("a parameter is described once, and has memory when it is initialized") {
  const int64_t before = memory_now().total;
  Parameter huge(Shape{int64_t{1} << 40, int64_t{1} << 20}, ParameterSpec{});
  CHECK(huge.described());
  CHECK_FALSE(huge.value().defined());
  CHECK(memory_now().total == before);
  Parameter p({}, {}, "w");
  CHECK(contains(error_of([&] { p.shape(); }), "'w' has no shape yet: its layer infers it from the form of its input"));
  p.describe({6, 18}, {6, 3, 3, 2}, {18, 54});
  CHECK(p.shape() == Shape{6, 18});
  CHECK(p.logical_shape() == Shape{6, 3, 3, 2});
  p.describe({6, 18}, {6, 3, 3, 2}, {18, 54});
  CHECK(error_of([&] { p.describe({6, 18}); }) == "[Parameter] 'w' has the shape [6,3,3,2], got [6,18]");
  CHECK(contains(error_of([&] {
                   Parameter({}, {}).describe({6, 18}, {6, 3, 3});
                 }),
                 "expected the same number of elements"));
  // Glorot and Bengio 2010, eq. 16, by the true fans: |w| <= sqrt(6 / (18 + 54)).
  p.initialize("w", 3);
  double upper = 0;
  for (const double v : p.value().values()) upper = std::max(upper, std::abs(v));
  CHECK(upper <= std::sqrt(6.0 / 72) * (1 + 1e-6));
  CHECK(upper > 0.9 * std::sqrt(6.0 / 72));
}

TEST_CASE("a model that was not planned cannot be initialized") {
  const auto model = make_layers({linear(4)});
  StepState state;
  CHECK(contains(error_of([&] { model->initialize(kModelRoot, state); }), "has no shape yet"));
}

TEST_CASE("a repeat of layers in turn has one of them in each round") {
  StepState state;
  const LayerSpec wide = linear(4), narrow = linear(4, false);
  const auto model = started({cycle(5, {wide, narrow, narrow})}, 4, state);
  CHECK(paths(*model) == std::vector<std::string>{"layers.0.0.0.weight", "layers.0.0.0.bias", "layers.0.1.0.weight",
                                                  "layers.0.2.0.weight", "layers.0.3.0.weight", "layers.0.3.0.bias",
                                                  "layers.0.4.0.weight"});
  CHECK(paths(*started({cycle(1, {wide, narrow})}, 4, state)).size() == 2);
  CHECK(paths(*started({repeat(2, {wide, narrow})}, 4, state)).size() == 6);
}

TEST_CASE("a residual multiplies its body by its scale, and so does its gradient") {
  const Tensor x = random_tensor({3, 4}, dtypes::fp32, 1, -2, 2);
  const auto of = [&](double scale) {
    LayerSpec spec = residual({plain("tanh")});
    spec.attributes["scale"] = scale;
    StepState state;
    const auto model = started({spec}, 4, state);
    AccumulateSink sink;
    Tape tape;
    const Var y = (*model)(tape.leaf(x, &sink, dtypes::fp32));
    tape.backward({y}, {Tensor::full(x.shape(), dtypes::fp32, 1)});
    return std::pair{y.value().to_vector(), sink.grad().to_vector()};
  };
  const auto [y, g] = of(0.375);
  const std::vector<float> in = x.to_vector(), body = unary(UnaryOp::tanh, Var(x)).value().to_vector();
  for (size_t i = 0; i < in.size(); ++i) {
    CHECK(y[i] == body[i] * 0.375f + in[i]);
    CHECK(g[i] == Approx(1 + 0.375 * (1 - static_cast<double>(body[i]) * static_cast<double>(body[i]))));
  }
}

TEST_CASE("a softcap keeps its inputs within its cap") {
  const Tensor x = Tensor::from_elements({1, 4}, dtypes::fp32, std::vector<double>{-100, 0, 1, 7});
  LayerSpec spec = plain("softcap");
  spec.attributes["cap"] = 4.0;
  StepState state;
  const std::vector<float> y = (*started({spec}, 4, state))(Var(x)).value().to_vector();
  CHECK((y[0] == -4 && y[1] == 0));
  CHECK(y[2] == Approx(4 * std::tanh(0.25)));
  CHECK(y[3] == Approx(4 * std::tanh(1.75)));
}
