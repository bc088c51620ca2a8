// Values between layers in bf16 (Form::values): each layer against itself in fp32 and against fp64, what is kept, and
// which models refuse.
#include <algorithm>
#include <functional>
#include <set>

#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/kernels/row.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr double kHalfUnit =
    0x1p-8;  // of bf16, which has 8 significant bits: the largest relative error of one rounding

class Strict {
 public:
  Strict() : outer_(bits_mode()) { set_bits_mode(BitsMode::kStrict); }
  ~Strict() { set_bits_mode(outer_); }

 private:
  BitsMode outer_;
};

LayerSpec layer(const std::string& kind, Attributes attributes = {}) {
  LayerSpec spec;
  spec.kind = kind;
  spec.attributes = std::move(attributes);
  return spec;
}

LayerSpec with_weight(LayerSpec spec, const std::optional<QuantSpec>& quant) {
  spec.weight.quant = quant;
  spec.weight.init = {"uniform", -1, 1};
  return spec;
}

LayerSpec quantizer(const std::string& kind, const QuantSpec& quant) {
  LayerSpec spec = layer(kind);
  spec.activation = quant;
  return spec;
}

QuantSpec per_channel(QuantSpec spec) {
  spec.granularity = Granularity::channel(0);
  return spec;
}

Tensor rounded(const Tensor& x) { return cast(Var(x), dtypes::bf16).value(); }
Tensor wide(const Tensor& x) { return x.dtype() == dtypes::bf16 ? cast(Var(x), dtypes::fp32).value() : x; }

struct Result {
  Tensor y, gx;
  std::vector<Tensor> grads;  // of the parameters
};

// The layer between two others, on samples x: trained on gy where y is of floats.
Result run(const LayerSpec& spec, const Tensor& x, DType values, bool training) {
  const auto module = make_layer(spec);
  Form in;
  in.sample = Shape(std::vector<int64_t>(x.shape().dims().begin() + 1, x.shape().dims().end()));
  in.dtype = x.dtype();
  in.values = values;
  in.inner = in.grad = true;
  in.training = training;
  module->plan(in);
  StepState state;
  state.seed = 9;
  state.training = training;
  module->initialize("layers.0", state);
  in.samples = x.shape()[0];
  const Form out = module->plan(in);
  AccumulateSink sink;
  Result result;
  Tape tape;
  const DType edge = x.dtype() == dtypes::bf16 ? dtypes::bf16 : dtypes::fp32;
  const bool floats = x.dtype().is_float();
  const Var y = (*module)(floats ? tape.leaf(x.clone(MemoryKind::kActivation), &sink, edge) : Var(x));
  REQUIRE(y.dtype() == out.dtype);
  result.y = y.value();
  if (!y.tracked()) return result;
  if (y.dtype().is_float()) CHECK(y.grad_dtype() == y.dtype());
  const Tensor gy = random_tensor(y.shape(), dtypes::bf16, 3);
  tape.backward({y}, {y.grad_dtype() == dtypes::bf16 ? gy : wide(gy)});
  if (sink.filled()) result.gx = sink.grad();
  for (const Parameter* p : module->parameters()) result.grads.push_back(p->has_grad() ? p->grad() : Tensor());
  return result;
}

const std::vector<std::pair<std::string, LayerSpec>>& layers_of_values() {
  static const std::vector<std::pair<std::string, LayerSpec>> all = [] {
    const auto linear = [](bool bias) { return layer("linear", {{"out", 9}, {"bias", bias}}); };
    std::vector<std::pair<std::string, LayerSpec>> list = {
        {"linear", with_weight(linear(true), {})},
        {"linear bint1", with_weight(linear(false), quant_spec(dtypes::bint1, "binary"))},
        {"linear ternary", with_weight(linear(true), quant_spec(dtypes::ternary, "ternary"))},
        {"linear int4", with_weight(linear(true), per_channel(quant_spec(dtypes::int4, "symmetric")))},
        {"linear int8 affine", with_weight(linear(true), quant_spec(dtypes::int8, "affine"))},
        {"batch_norm", layer("batch_norm")},
        {"tensor_norm", layer("tensor_norm")},
        {"dropout", layer("dropout", {{"p", 0.4}})},
        {"quantize bint1", quantizer("quantize", quant_spec(dtypes::bint1, "binary"))},
        {"quantize int8", quantizer("quantize", quant_spec(dtypes::int8, "affine"))},
        {"quantize lsq", quantizer("quantize", quant_spec(dtypes::int4, "lsq"))},
        {"quantize_gradient", quantizer("quantize_gradient", quant_spec(dtypes::int8, "absmax"))},
        {"dequantize", layer("dequantize")},
    };
    for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op)
      list.emplace_back(unary_name(static_cast<UnaryOp>(op)), layer(std::string(unary_name(static_cast<UnaryOp>(op)))));
    return list;
  }();
  return all;
}

// Rounds values and gradients of an fp64 edge to bf16.
struct RoundedEdge {
  static constexpr std::string_view kName = "rounded_edge";
  struct Saved {};
  static Tensor round(const Tensor& x) {
    std::vector<double> v = x.numbers();
    for (double& n : v) n = static_cast<double>(bf16_to_float(bf16_from_float(static_cast<float>(n))));
    return Tensor::from_numbers(x.shape(), dtypes::fp64, v);
  }
  static Tensor forward(Saved&, std::span<const Tensor> in) { return round(in[0]); }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set(round(gy[0]));
  }
};
Var edge(const Var& x) { return apply<RoundedEdge>({x}); }

Tensor as_double(const Tensor& x) { return Tensor::from_numbers(x.shape(), dtypes::fp64, x.values()); }

// "" where each element of `got` is `expected` with one rounding to bf16 (of an fp32 `got`: none) and fp32 arithmetic
// whose error is at most `sums` times the largest element; else the first that is not.
std::string off(const Tensor& got, const Tensor& expected, double sums) {
  const std::vector<double> a = got.numbers(), b = expected.numbers();
  if (a.size() != b.size()) return "sizes";
  double largest = 0;
  for (const double v : b) largest = std::max(largest, std::fabs(v));
  const double relative = got.dtype() == dtypes::bf16 ? kHalfUnit : 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(a[i] - b[i]) <= relative * std::fabs(b[i]) + sums * (1 + relative) * largest))
      return concat("element ", i, ": ", a[i], ", expected ", b[i]);
  return "";
}

// What a sink has, or nothing.
const Tensor& grad_of(const AccumulateSink& sink) { return sink.grad(); }

}  // namespace

TEST_CASE("a layer between bf16 values gives what it gives for the widened values in fp32, rounded once, bit for bit") {
  const Strict strict;
  for (const auto& [name, spec] : layers_of_values())
    for (const Shape& shape : {Shape{1, 1}, Shape{7, 33}, Shape{64, 130}, Shape{3, 5, 17}})
      for (const bool training : {true, false}) {
        if (name == "quantize lsq" && shape.rank() == 3) continue;
        INFO(name << ' ' << shape << (training ? " training" : " evaluation"));
        const Tensor x = random_tensor(shape, dtypes::bf16, 5, -2, 2);
        const Result narrow = run(spec, x, dtypes::bf16, training), full = run(spec, wide(x), dtypes::fp32, training);
        if (full.y.dtype() == dtypes::fp32) {
          CHECK(narrow.y.dtype() == dtypes::bf16);
          CHECK(bits_of(narrow.y) == bits_of(rounded(full.y)));
        } else {
          CHECK(narrow.y.dtype() == full.y.dtype());
          CHECK(narrow.y.numbers() == full.y.numbers());
          CHECK(narrow.y.values() == full.y.values());
        }
        REQUIRE(narrow.gx.defined() == full.gx.defined());
        if (full.gx.defined()) {
          CHECK(narrow.gx.dtype() == dtypes::bf16);
          CHECK(bits_of(narrow.gx) == bits_of(rounded(full.gx)));
        }
        REQUIRE(narrow.grads.size() == full.grads.size());
        for (size_t i = 0; i < full.grads.size(); ++i) {
          REQUIRE(narrow.grads[i].defined() == full.grads[i].defined());
          if (full.grads[i].defined()) CHECK(bits_of(narrow.grads[i]) == bits_of(full.grads[i]));
        }
      }
}

TEST_CASE("the model's input is not rounded: a first layer reads fp32 and writes bf16") {
  const Strict strict;
  for (const auto& [name, spec] : layers_of_values()) {
    INFO(name);
    const Tensor x = random_tensor({6, 21}, dtypes::fp32, 6, -2, 2);
    const Result narrow = run(spec, x, dtypes::bf16, true), full = run(spec, x, dtypes::fp32, true);
    // What hands on its input keeps its dtype.
    const bool keeps = name == "dropout" || name == "quantize_gradient" || name == "dequantize";
    if (full.y.dtype() != dtypes::fp32) {
      CHECK(narrow.y.numbers() == full.y.numbers());
    } else {
      CHECK(narrow.y.dtype() == (keeps ? dtypes::fp32 : dtypes::bf16));
      CHECK(bits_of(narrow.y) == bits_of(keeps ? full.y : rounded(full.y)));
    }
  }
}

TEST_CASE("an embedding in bf16 gives its rows rounded once, and the fp32 sums of bf16 gradients") {
  for (const DType dtype : {dtypes::fp32, dtypes::bint1, dtypes::int4, dtypes::int8})
    for (const bool flat : {true, false}) {
      INFO(dtype << flat);
      const LayerSpec spec = with_weight(layer("embedding", {{"num", 11}, {"dim", 19}, {"flat", flat}}),
                                         dtype == dtypes::fp32 ? std::optional<QuantSpec>() : usual_weight_spec(dtype));
      const Tensor ids = Tensor::from_numbers({2, 3}, dtypes::int32, std::vector<double>{4, 0, 4, 10, 1, 4});
      const Result narrow = run(spec, ids, dtypes::bf16, true), full = run(spec, ids, dtypes::fp32, true);
      CHECK(narrow.y.dtype() == dtypes::bf16);
      CHECK(narrow.y.shape() == full.y.shape());
      CHECK(bits_of(narrow.y) == bits_of(rounded(full.y)));
      CHECK(bits_of(narrow.grads[0]) == bits_of(full.grads[0]));
    }
}

TEST_CASE("layers in bf16 equal fp64 with a rounding at each edge, forward and backward") {
  const auto weighted = [](const std::vector<Var>& v) { return linear(v[0], v[1], v.size() > 2 ? v[2] : Var()); };
  NormOptions norm;
  norm.eps = 1e-5f;
  NormOptions whole;
  whole.eps = 1e-4f;
  using Reference = std::function<Var(const std::vector<Var>&)>;
  std::vector<std::pair<std::string, Reference>> references = {
      {"linear", weighted},
      {"linear bint1", weighted},
      {"linear ternary", weighted},
      {"linear int4", weighted},
      {"linear int8 affine", weighted},
      {"batch_norm", [&](const auto& v) { return batch_norm(v[0], v[1], v[2], norm); }},
      {"tensor_norm", [&](const auto& v) { return tensor_norm(v[0], v[1], v[2], whole); }}};
  for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op)
    references.emplace_back(unary_name(static_cast<UnaryOp>(op)),
                            [op](const auto& v) { return unary(static_cast<UnaryOp>(op), v[0]); });
  for (const auto& [name, reference] : references)
    for (const Shape& shape : {Shape{2, 3}, Shape{33, 65}, Shape{9, 257}}) {
      INFO(name << ' ' << shape);
      const LayerSpec& spec = std::find_if(layers_of_values().begin(), layers_of_values().end(), [&](const auto& l) {
                                return l.first == name;
                              })->second;
      const Tensor x = random_tensor(shape, dtypes::bf16, 15, -2, 2);
      const Result got = run(spec, x, dtypes::bf16, true);
      const auto twin = make_layer(spec, shape.cols());
      StepState state;
      state.seed = 9;
      twin->initialize("layers.0", state);
      Tape tape;
      std::vector<AccumulateSink> sinks(1 + twin->parameters().size());
      std::vector<Var> in{tape.leaf(as_double(x), &sinks[0], dtypes::fp64)};
      for (size_t i = 0; i < twin->parameters().size(); ++i)
        in.push_back(tape.leaf(as_double(twin->parameters()[i]->value()), &sinks[i + 1], dtypes::fp64));
      const Var y = reference(in);
      tape.backward({y}, {as_double(random_tensor(y.shape(), dtypes::bf16, 3))});
      constexpr double kSums = 4e-6;  // of fp32, for sums of at most 257 elements
      CHECK(off(got.y, y.value(), kSums) == "");
      CHECK(off(got.gx, grad_of(sinks[0]), kSums * 4) == "");
      for (size_t i = 0; i < got.grads.size(); ++i) CHECK(off(got.grads[i], grad_of(sinks[i + 1]), kSums * 4) == "");
    }
}

TEST_CASE("joins in bf16 are computed in fp32 of what their branches wrote, and rounded once") {
  const Strict strict;
  const Tensor x = random_tensor({5, 24}, dtypes::bf16, 8, -2, 2);
  const Var t(rounded(tanh(Var(wide(x))).value())), r(rounded(relu(Var(wide(x))).value())), s(x);
  const auto wide_var = [](const Var& v) { return Var(wide(v.value())); };
  const auto list = [](const std::string& key, const std::vector<std::string>& kinds) {
    std::vector<LayerSpec> layers;
    for (const std::string& kind : kinds) layers.push_back(layer(kind));
    return LayerList(key, layers);
  };
  LayerSpec residual = layer("residual");
  residual.lists = {list("body", {"tanh"})};
  CHECK(bits_of(run(residual, x, dtypes::bf16, true).y) == bits_of(rounded(add(wide_var(t), wide_var(s)).value())));
  residual.lists = {list("body", {"tanh"}), list("shortcut", {"relu"})};
  CHECK(bits_of(run(residual, x, dtypes::bf16, true).y) == bits_of(rounded(add(wide_var(t), wide_var(r)).value())));
  for (const std::string join : {"add", "multiply", "concat"}) {
    INFO(join);
    LayerSpec branches = layer("branches", {{"join", join}});
    const auto op = [&](const Var& a, const Var& b) {
      return join == "add" ? add(a, b) : join == "multiply" ? mul(a, b) : concatenate({a, b}, -1);
    };
    branches.lists = {list("0", {"tanh"}), list("1", {"relu"})};
    CHECK(bits_of(run(branches, x, dtypes::bf16, true).y) == bits_of(rounded(op(wide_var(t), wide_var(r)).value())));
    branches.lists.push_back(list("2", {}));
    CHECK(bits_of(run(branches, x, dtypes::bf16, true).y) ==
          bits_of(rounded(op(op(wide_var(t), wide_var(r)), wide_var(s)).value())));
  }
}

namespace {

ModelSpec net(DType values) {
  ModelSpec spec;
  spec.input.sample = {40};
  spec.input.values = values;
  const auto linear = [](int64_t out, bool bias) {
    LayerSpec made = with_weight(layer("linear", {{"out", out}, {"bias", bias}}), {});
    made.weight.init = {"glorot_uniform"};
    return made;
  };
  LayerSpec residual = layer("residual");
  residual.lists = {LayerList("body", {linear(256, true), layer("tanh")})};
  // No kinks: a rounding must not switch a gradient off.
  spec.layers = {linear(256, false), layer("batch_norm"), residual, layer("gelu"), linear(10, true)};
  return spec;
}

class Probe final : public Module {
 public:
  explicit Probe(std::vector<std::pair<DType, DType>>& seen) : seen_(seen) {}
  Var forward(const Var& x) override {
    seen_.emplace_back(x.dtype(), x.grad_dtype());
    return x;
  }
  Form plan(const Form& in, PlanRequests&) override { return in; }

 private:
  std::vector<std::pair<DType, DType>>& seen_;
};

// Bytes that a forward of 64 samples keeps for the backward, and how many of its tensors [64, 256] have `values`.
std::pair<int64_t, int64_t> kept(DType values) {
  const auto model = make_model(net(values));
  StepState state;
  model->initialize("layers", state);
  const Tensor x = random_tensor({64, 40}, dtypes::fp32, 1);
  Tape tape;
  int64_t edges = 0;
  tape.set_saved_hook([&](const Tensor& t) {
    edges += t.shape() == Shape{64, 256} && t.dtype() == values;
    return t;
  });
  const int64_t before = memory_now()[MemoryKind::kSaved] + memory_now()[MemoryKind::kActivation];
  const Var y = (*model)(x);
  CHECK(y.dtype() == dtypes::fp32);
  CHECK(memory_now()[MemoryKind::kWorkspace] == 0);
  return {memory_now()[MemoryKind::kSaved] + memory_now()[MemoryKind::kActivation] - before, edges};
}

}  // namespace

TEST_CASE("what is kept between layers takes half the bytes in bf16, by the memory account") {
  const auto [full, full_edges] = kept(dtypes::fp32);
  const auto [half, half_edges] = kept(dtypes::bf16);
  // Kept: what batch norm, the body's linear, tanh and gelu read, and the last linear.
  CHECK(full_edges == 5);
  CHECK(half_edges == 5);
  CHECK(full - half == 5 * 64 * 256 * 2);
}

TEST_CASE("every edge between two layers has bf16 values and bf16 gradients, the model's ends are fp32") {
  std::vector<std::pair<DType, DType>> seen;
  const auto linear = [](int64_t out) { return make_layer(with_weight(layer("linear", {{"out", out}}), {})); };
  const auto made = std::vector<std::shared_ptr<Module>>{
      linear(8),
      std::make_shared<Probe>(seen),
      make_layer(layer("batch_norm")),
      std::make_shared<Probe>(seen),
      make_layer(layer("gelu")),
      std::make_shared<Probe>(seen),
      make_layer(with_weight(layer("linear", {{"out", 3}}), quant_spec(dtypes::int4, "symmetric")))};
  Sequential model(made);
  Form in;
  in.sample = {12};
  in.values = dtypes::bf16;
  const Form out = model.plan(in);
  CHECK(out.dtype == dtypes::fp32);
  StepState state;
  model.initialize("layers", state);
  Tape tape;
  const Var y = model(Var(random_tensor({5, 12}, dtypes::fp32, 2)));
  CHECK(y.dtype() == dtypes::fp32);
  CHECK(y.grad_dtype() == dtypes::fp32);
  CHECK(seen == std::vector<std::pair<DType, DType>>(3, {dtypes::bf16, dtypes::bf16}));
}

TEST_CASE("the model's outputs are fp32 whatever its last layer is") {
  const Strict strict;
  for (const auto& [name, spec] : layers_of_values()) {
    if (name.starts_with("quantize ")) continue;
    INFO(name);
    ModelSpec model;
    model.input.sample = {16};
    model.input.values = dtypes::bf16;
    model.layers = {layer("tanh"), spec};
    const auto made = make_model(model);
    StepState state;
    state.training = false;
    made->initialize("layers", state);
    const Tensor x = random_tensor({4, 16}, dtypes::fp32, 12, -2, 2);
    const Tensor y = (*made)(Var(x)).value(), between = rounded(tanh(Var(x)).value());
    REQUIRE(y.dtype() == dtypes::fp32);
    // The last layer computes in fp32 of what it reads, and rounds nothing.
    CHECK(bits_of(y) == bits_of((*made)[1](Var(wide(between))).value()));
  }
}

namespace {

// The net in fp64: parameters in the order of the model's.
Var reference_net(const std::vector<Var>& v, bool rounds) {
  const auto between = [&](const Var& x) { return rounds ? edge(x) : x; };
  NormOptions norm;
  norm.eps = 1e-5f;
  const Var a = between(linear(v[0], v[1])), b = between(batch_norm(a, v[2], v[3], norm));
  const Var body = between(tanh(between(linear(b, v[4], v[5]))));
  return linear(between(gelu(between(add(body, b)))), v[6], v[7]);
}

}  // namespace

TEST_CASE("a network in bf16 has the outputs and gradients of fp64 with a rounding at each edge, and those of fp64") {
  const auto model = make_model(net(dtypes::bf16));
  StepState state;
  state.seed = 4;
  model->initialize("layers", state);
  const Tensor x = random_tensor({32, 40}, dtypes::fp32, 21), gy = random_tensor({32, 10}, dtypes::fp32, 22);
  Tensor got;
  {
    Tape tape;
    const Var y = (*model)(Var(x));
    got = y.value();
    tape.backward({y}, {gy});
  }
  const std::vector<Parameter*> parameters = model->parameters();
  REQUIRE(parameters.size() == 7);
  std::vector<std::vector<Tensor>> references;
  for (const bool rounds : {true, false}) {
    Tape tape;
    std::vector<AccumulateSink> sinks(parameters.size());
    std::vector<Var> in{Var(as_double(x))};
    for (size_t i = 0; i < parameters.size(); ++i)
      in.push_back(tape.leaf(as_double(parameters[i]->value()), &sinks[i], dtypes::fp64));
    const Var y = reference_net(in, rounds);
    tape.backward({y}, {as_double(gy)});
    std::vector<Tensor>& all = references.emplace_back();
    all.push_back(y.value());
    for (const AccumulateSink& sink : sinks) all.push_back(sink.grad());
  }
  for (size_t i = 0; i < references[0].size(); ++i) {
    const Tensor& value = i == 0 ? got : parameters[i - 1]->grad();
    INFO((i == 0 ? std::string("outputs") : parameters[i - 1]->path()));
    // With the roundings: what is left are elements that fp32 and fp64 round to neighbours. Without: as many roundings
    // as there are edges on the way there and back (12), of random signs.
    CHECK(distance(value, references[0][i]) <= kHalfUnit / 8);
    CHECK(distance(value, references[1][i]) <= kHalfUnit * 4);
    CHECK(distance(value, references[1][i]) > 0);
  }
}

TEST_CASE("models refuse values of other dtypes, and kinds that know no bf16") {
  ModelSpec bad = net(dtypes::fp16);
  CHECK(error_of([&] { make_model(bad); }) == "[model] values between layers: got fp16, expected fp32 or bf16");
  class Fp32Only final : public Module {
   public:
    Var forward(const Var& x) override { return x; }
    Form plan(const Form& in, PlanRequests&) override { return in; }
    std::string_view kind() const override { return "nn_test_fp32_only"; }
  };
  LayerKind kind;
  kind.name = "nn_test_fp32_only";
  kind.make = [](const LayerSpec&) { return std::make_shared<Fp32Only>(); };
  register_layer(kind);
  ModelSpec model = net(dtypes::bf16);
  model.layers[3] = layer("nn_test_fp32_only");
  CHECK(error_of([&] { make_model(model); }) ==
        "layer 3: [nn_test_fp32_only] reads and gives fp32 values alone: values between layers are bf16, expected "
        "fp32. Set model.values: fp32");
  model.input.values = dtypes::fp32;
  CHECK_NOTHROW(make_model(model));
}

TEST_CASE("every shipped kind of layer knows bf16") {
  for (const LayerKind* kind : layer_kinds())
    if (kind->name.find("_test_") == std::string::npos) {
      INFO(kind->name);
      CHECK(kind->bf16);
    }
}
