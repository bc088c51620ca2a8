// Networks whose values between layers are bf16: what is kept, which dtypes edges have, gradients against fp64, and
// which models refuse.
#include "bitgrad/base/memory.h"
#include "bitgrad/ops/unary.h"
#include "kernels/flag.h"
#include "nn/bf16_layers.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Rounds values and gradients of an fp64 edge to bf16.
struct RoundedEdge {
  static constexpr std::string_view kName = "rounded_edge";
  struct Saved {};
  static Tensor round(const Tensor& x) {
    std::vector<double> v = x.elements();
    for (double& n : v) n = static_cast<double>(bf16_to_float(bf16_from_float(static_cast<float>(n))));
    return Tensor::from_elements(x.shape(), dtypes::fp64, v);
  }
  static Tensor forward(Saved&, std::span<const Tensor> in) { return round(in[0]); }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set(round(gy[0]));
  }
};
Var edge(const Var& x) { return apply<RoundedEdge>({x}); }

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
  const FlagWord word;  // a device keeps room for such words
  const int64_t workspace = memory_now()[MemoryKind::kWorkspace];
  Tape tape;
  int64_t edges = 0;
  tape.set_saved_hook([&](const Tensor& t) {
    edges += t.shape() == Shape{64, 256} && t.dtype() == values;
    return t;
  });
  const int64_t before = memory_now()[MemoryKind::kSaved] + memory_now()[MemoryKind::kActivation];
  const Var y = (*model)(x);
  CHECK(y.dtype() == dtypes::fp32);
  CHECK(memory_now()[MemoryKind::kWorkspace] == workspace);
  return {memory_now()[MemoryKind::kSaved] + memory_now()[MemoryKind::kActivation] - before, edges};
}

}  // namespace

TEST_CASE("what is kept between layers needs half the bytes in bf16, by the memory account") {
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
  CHECK((seen == std::vector<std::pair<DType, DType>>(3, {dtypes::bf16, dtypes::bf16})));
}

TEST_CASE("a module that has read the bf16 value it returns keeps its gradient in fp32") {
  class Reader final : public Module {
   public:
    Var forward(const Var& x) override {
      Var y = cast(x, dtypes::bf16);
      if (reads) static_cast<void>(sum(cast(y, dtypes::fp32)));
      return y;
    }
    Form plan(const Form& in, PlanRequests&) override { return in; }
    bool reads = false;
  };
  Reader module;
  for (const bool reads : {false, true}) {
    module.reads = reads;
    AccumulateSink sink;
    Tape tape;
    const Var x = tape.leaf(random_tensor({3, 4}, dtypes::fp32, 1), &sink, dtypes::fp32);
    CHECK_FALSE(x.was_read());
    const Var y = module(x);
    CHECK(x.was_read());
    CHECK(y.was_read() == reads);
    CHECK(y.grad_dtype() == (reads ? dtypes::fp32 : dtypes::bf16));
  }
  CHECK_FALSE(Var(random_tensor({3, 4}, dtypes::fp32, 1)).was_read());
}

TEST_CASE("the model's outputs are fp32 for any last layer") {
  const StrictBits strict;
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
    const DeviceGuard doubles(Device::cpu());
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
        "layer 3: [nn_test_fp32_only] reads and returns fp32 values only: values between layers are bf16, expected "
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
