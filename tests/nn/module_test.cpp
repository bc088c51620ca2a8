// Modules: paths, parameters, buffers; every layer by name; plans and their errors.
#include "bitgrad/nn/module.h"
#include "kernels/flag.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

LayerSpec layer(const std::string& kind) {
  LayerSpec spec;
  spec.kind = kind;
  return spec;
}
LayerSpec linear_spec(int64_t out, const QuantSpec& quant, bool bias = false) {
  LayerSpec spec = layer("linear");
  spec.attributes["out"] = out;
  spec.attributes["bias"] = bias;
  spec.weight = weight_spec(quant);
  return spec;
}
LayerSpec quantize_spec(const QuantSpec& quant) {
  LayerSpec spec = layer("quantize");
  spec.activation = ActivationQuant{quant};
  return spec;
}
const QuantSpec kBinary = quant_spec(dtypes::bint1, "binary");

std::vector<std::string> names(Module& m) {
  std::vector<std::string> out;
  for (const Parameter* p : m.parameters()) out.push_back(p->path());
  return out;
}

class Passing final : public Module {
 public:
  Var forward(const Var& x) override { return x; }
  Form plan(const Form& in, PlanRequests&) override { return in; }
};

struct OwnError : Error {
  using Error::Error;
};
class Failing final : public Module {
 public:
  explicit Failing(bool own) : own_(own) {}
  Var forward(const Var&) override {
    if (own_) throw OwnError("mine");
    fail_with(ErrorCode::kNonFinite, "failing", "NaN");
  }
  Form plan(const Form& in, PlanRequests&) override { return in; }

 private:
  bool own_;
};

// Two parameters of one name, if asked; or two whose paths collide.
class Named final : public Module {
 public:
  explicit Named(const std::vector<std::string>& parameters) {
    for (const std::string& n : parameters) add_parameter(n, {1}, {});
  }
  Var forward(const Var& x) override { return x; }
  Form plan(const Form& in, PlanRequests&) override { return in; }
};

}  // namespace

TEST_CASE("a model names parameters and buffers by path, own before children") {
  LayerSpec norm = layer("batch_norm");
  auto model = make_sequential({quantize_spec(kBinary), linear_spec(8, kBinary, true), norm, quantize_spec(kBinary),
                                linear_spec(3, kBinary), layer("tensor_norm")},
                               12);
  StepState state;
  model->initialize("layers", state);
  CHECK(names(*model) == std::vector<std::string>{"layers.1.weight", "layers.1.bias", "layers.2.gamma", "layers.2.beta",
                                                  "layers.4.weight", "layers.5.gamma", "layers.5.beta"});
  std::vector<std::string> buffers;
  for (const auto& b : model->buffers()) buffers.push_back(concat(b.path, ' ', b.tensor));
  CHECK(buffers == std::vector<std::string>{"layers.2.running_mean [8] fp32", "layers.2.running_var [8] fp32",
                                            "layers.5.running_mean [1] fp32", "layers.5.running_var [1] fp32"});
  CHECK(model->path() == "layers");
  CHECK(model->size() == 6);
  CHECK((*model)[4].path() == "layers.4");
  CHECK(model->parameters()[0]->shape() == Shape{8, 12});
  CHECK(model->parameters()[2]->value().elements() == std::vector<double>(8, 1.0));
}

TEST_CASE("every layer of the list is made by its name and gives what it plans") {
  for (const std::string& name : layer_names()) {
    INFO(name);
    const LayerKind& kind = *find_layer_kind(name);
    LayerSpec spec = layer(name);
    for (const Key& key : kind.keys)
      if (key.standard == "!") spec.attributes[key.name] = key.name == "p" ? Attribute(0.5) : Attribute(3);
    if (name == "shortcut_a") spec.attributes["out"] = 9;  // not fewer channels
    if (kind.lists.kind == LayerLists::Kind::kNamed) spec.lists = {{"body", {layer("relu")}}};
    if (kind.lists.kind == LayerLists::Kind::kIndexed) spec.lists = {{"0", {}}, {"1", {layer("relu")}}};
    if (kind.lists.kind == LayerLists::Kind::kInline || kind.lists.kind == LayerLists::Kind::kRepeated)
      spec.lists = {{"layers", {layer("relu")}}};
    if (name == "head") continue;  // reads the weight of another layer
    spec.weight = weight_spec(quant_spec(dtypes::int4, "symmetric"));
    spec.activation = ActivationQuant{quant_spec(dtypes::int8, "symmetric")};
    const auto module = make_layer(spec);
    StepState state;
    Form in;
    in.samples = 4;
    const bool sequence = name == "attention" || name == "positions";  // of 3 heads, 3 positions
    in.sample = sequence ? Shape{3, 9} : name == "unsqueeze" ? Shape{5, 6} : kind.axes ? Shape{5, 6, 8} : Shape{8};
    if (name == "embedding") {
      in.dtype = dtypes::int32;
      in.ids = 3;
    }
    module->plan(in);  // gives the parameters their shapes
    module->initialize("m", state);
    const Form out = module->plan(in);
    const Tensor x =
        name == "embedding" ? Tensor::full({4, 8}, dtypes::int32, 2) : random_tensor(in.shape(), dtypes::fp32, 1);
    const Tensor y = module->forward(Var(x)).value();
    CHECK(y.shape() == out.shape());
    CHECK(y.dtype() == out.dtype);
    CHECK(bool(y.quant() && y.quant()->scale) == out.scales.has_value());
    CHECK(bool(y.quant() && y.quant()->zero) == (out.scales && out.scales->zero_point));
  }
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i)
    CHECK_NOTHROW(make_layer(layer(std::string(unary_name(static_cast<UnaryOp>(i)))), 3));
}

TEST_CASE("unknown layers and wrong specs are errors with their place and the known names") {
  CHECK(contains(
      error_of([] { make_layer(layer("linaer"), 3); }),
      "unknown layer 'linaer'. Did you mean 'linear'? Known: attention, avg_pool, batch_norm, branches, conv2d, "));
  CHECK(error_of([] {
          make_sequential({linear_spec(4, kBinary), layer("nothing_like_it")}, 3);
        }).rfind("layer 1: [layer] unknown layer 'nothing_like_it'", 0) == 0);
  CHECK(error_of([] { make_layer(linear_spec(0, kBinary), 3); }) ==
        "[linear] out: got 0, expected a whole number in [1, 1048576]");
  CHECK(error_of([] { make_layer(layer("linear"), 3); }) ==
        "[linear] attribute 'out' is missing: a whole number in [1, 1048576]");
  LayerSpec misspelt = linear_spec(4, kBinary);
  misspelt.attributes["biass"] = true;
  CHECK(contains(error_of([&] { make_layer(misspelt, 3); }), "unknown attribute 'biass'. Did you mean 'bias'?"));
  misspelt = linear_spec(4, kBinary);
  misspelt.attributes["bias"] = 1;
  CHECK(error_of([&] { make_layer(misspelt, 3); }) == "[linear] bias: got 1, expected true or false");
  CHECK(contains(error_of([] { make_layer(layer("quantize"), 3); }), "needs quantized activations"));
  LayerSpec norm = layer("batch_norm");
  norm.attributes["eps"] = 0;
  CHECK(contains(error_of([&] { make_layer(norm, 3); }), "[batch_norm] eps: got 0, expected a number in [1e-12, 1]"));
  norm.attributes["eps"] = 1e-5;
  norm.attributes["momentum"] = 2;
  CHECK(contains(error_of([&] { make_layer(norm, 3); }), "[batch_norm] momentum: got 2, expected a number in (0, 1]"));
  LayerSpec drop = layer("dropout");
  drop.attributes["p"] = 1;
  CHECK(contains(error_of([&] { make_layer(drop, 3); }), "[dropout] p: got 1, expected a number in [0, 1)"));
}

TEST_CASE("plans refuse what does not fit, with the layer's place") {
  CHECK(error_of([] {
          make_sequential({linear_spec(4, kBinary), quantize_spec(kBinary), layer("batch_norm")}, 3);
        }) == "layer 2: [batch_norm] needs fp32 input, got bint1. Put it before the quantizer");
  CHECK(contains(error_of([] {
                   make_sequential({quantize_spec(kBinary), quantize_spec(kBinary)}, 3);
                 }),
                 "layer 1: [quantize] needs fp32 input, got bint1"));
  CHECK(contains(error_of([] {
                   make_sequential({quantize_spec(kBinary), layer("relu")}, 3);
                 }),
                 "layer 1: [relu] needs fp32 input, got bint1"));
  auto model = make_sequential({linear_spec(4, kBinary), linear_spec(2, kBinary)}, 3);
  StepState state;
  model->initialize("layers", state);
  Form in;
  in.sample = {5};
  CHECK(error_of([&] { model->plan(in); }) == "layer 0: [linear] x has 5 features, w expects 3");
}

TEST_CASE("errors of a forward pass start with the layer, and keep their code") {
  const auto inner = std::make_shared<Sequential>();
  auto model = make_sequential({layer("relu"), linear_spec(4, kBinary)}, 3);
  model->append(inner);
  inner->append(std::make_shared<Failing>(false));
  StepState state;
  model->initialize("layers", state);
  const auto run = [&](int64_t features) { model->forward(Var(Tensor::zeros({2, features}, dtypes::fp32))); };
  CHECK(error_of([&] { run(5); }).rfind("layer 1: [linear] x has 5 features, w expects 3", 0) == 0);
  CHECK(error_code_of([&] { run(5); }) == 2);
  CHECK(error_of([&] { run(3); }) == "layer 2.0: [failing] NaN");
  CHECK(error_code_of([&] { run(3); }) == 5);
  Sequential own({std::make_shared<Failing>(true)});
  own.initialize("own", state);
  CHECK_THROWS_AS(own.forward(Var(Tensor::zeros({1, 3}, dtypes::fp32))), OwnError);
}

TEST_CASE("a program's own layer is made by name, once") {
  const auto kind = [](const std::string& name) {
    LayerKind passing;
    passing.name = name;
    passing.make = [](const LayerSpec&) { return std::make_shared<Passing>(); };
    return passing;
  };
  register_layer(kind("nn_test_passing"));
  CHECK(error_of([&] { register_layer(kind("nn_test_passing")); }) ==
        "[register_layer] a layer kind 'nn_test_passing' exists already");
  CHECK(contains(error_of([&] { register_layer(kind("linear")); }), "'linear' exists already"));
  const auto known = layer_names();
  CHECK(std::find(known.begin(), known.end(), "nn_test_passing") != known.end());
  auto model = make_sequential({layer("nn_test_passing"), linear_spec(2, kBinary)}, 3);
  StepState state;
  model->initialize("m", state);
  CHECK(model->forward(Var(random_tensor({1, 3}, dtypes::fp32, 1))).shape() == Shape{1, 2});
}

TEST_CASE("linear plans the layouts that its kernels read, and the plan changes no bit") {
  auto model = make_sequential({quantize_spec(kBinary), linear_spec(64, kBinary)}, 256),
       plain = make_sequential({quantize_spec(kBinary), linear_spec(64, kBinary)}, 256);
  StepState state, other;
  model->initialize("layers", state);
  plain->initialize("layers", other);
  Form in;
  in.sample = {256};
  model->plan(in);
  CHECK(model->parameters()[0]->value().attached_layouts().empty());  // rows 0: the form only
  in.samples = 100;
  const Form out = model->plan(in);
  CHECK(out.features() == 64);
  CHECK(out.dtype == dtypes::fp32);
  const Tensor x = random_tensor({100, 256}, dtypes::fp32, 4);
  CHECK(bits_of(model->forward(Var(x)).value()) == bits_of(plain->forward(Var(x)).value()));
}

TEST_CASE("dropout is the identity in evaluation, and drawn by path and microbatch in training") {
  LayerSpec spec = layer("dropout");
  spec.attributes["p"] = 0.5;
  auto model = make_sequential({spec, spec}, 64);
  StepState state;
  model->initialize("layers", state);
  const Var x = random_tensor({8, 64}, dtypes::fp32, 5, 1, 2);
  state.training = false;
  CHECK(model->forward(x).value().data() == x.value().data());
  state.training = true;
  const auto first = (*model)[0].forward(x).value().elements();
  CHECK(first != x.value().elements());
  CHECK((*model)[0].forward(x).value().elements() == first);
  CHECK((*model)[1].forward(x).value().elements() != first);
  state.microbatch = 1;
  CHECK((*model)[0].forward(x).value().elements() != first);
  Form in;
  in.sample = {64};
  in.dtype = dtypes::bint1;
  CHECK((*model)[0].plan(in).dtype == dtypes::ternary);
  in.training = false;
  CHECK((*model)[0].plan(in).dtype == dtypes::bint1);
}

TEST_CASE("norm layers write their running statistics in training only") {
  for (const char* kind : {"batch_norm", "tensor_norm"}) {
    auto model = make_sequential({layer(kind)}, 6);
    StepState state;
    model->initialize("layers", state);
    const Var x = random_tensor({10, 6}, dtypes::fp32, 6, 2, 4);
    state.training = false;
    model->forward(x);
    CHECK(model->buffers()[0].tensor.elements() == std::vector<double>(kind[0] == 'b' ? 6 : 1, 0.0));
    CHECK(model->buffers()[1].tensor.elements() == std::vector<double>(kind[0] == 'b' ? 6 : 1, 1.0));
    state.training = true;
    model->forward(x);
    for (const double mean : model->buffers()[0].tensor.elements())
      CHECK((mean > 0.2 && mean < 0.4));  // 0.1 of about 3
    for (const double var : model->buffers()[1].tensor.elements())
      CHECK((var > 0.9 && var < 1));  // 0.9 + 0.1 of about 1/3
  }
}

TEST_CASE("a quantizer layer raises the flag of its path for NaN, and draws by path and microbatch") {
  auto model = make_sequential({quantize_spec(quant_spec(dtypes::int4, "symmetric", Rounding::kStochastic))}, 40);
  StepState state;
  model->initialize("layers", state);
  const Tensor x = random_tensor({5, 40}, dtypes::fp32, 7);
  const auto a = model->forward(Var(x)).value().elements();
  CHECK(model->forward(Var(x)).value().elements() == a);
  state.microbatch = 1;
  CHECK(model->forward(Var(x)).value().elements() != a);
  CHECK(state.flags.raised().empty());
  x.as<float>()[3] = NAN;
  CHECK_NOTHROW(model->forward(Var(x)));
  poll_errors();
  CHECK(state.flags.raised() == std::vector<std::string>{"layers.0"});
  state.flags.clear();
  CHECK(state.flags.raised().empty());
}

TEST_CASE("equal and colliding paths are errors when the model is built") {
  StepState state;
  Named twice({"a", "a"});
  CHECK(error_of([&] { twice.initialize("m", state); }) ==
        "[Module] two modules or parameters have the path 'm.a'. Rename one.");
  // Search a pair of short names with one CRC32C: by the birthday paradox about 2^16 names do.
  std::map<uint32_t, std::string> seen;
  std::string first, second;
  for (int64_t i = 0; i < 2000000 && second.empty(); ++i) {
    const std::string name = concat("w", i * 7919);
    const auto [at, fresh] = seen.emplace(site_id("m." + name), name);
    if (!fresh) {
      first = at->second;
      second = name;
    }
  }
  REQUIRE_FALSE(second.empty());
  Named colliding({first, second});
  CHECK(contains(error_of([&] { colliding.initialize("m", state); }),
                 "have the same CRC32C, so their random draws would be equal"));
}

TEST_CASE("a module that was not initialized is an error") {
  const auto forward = [](const LayerSpec& spec) {
    return error_of([&] { make_layer(spec, 3)->forward(Var(Tensor::zeros({2, 3}, dtypes::fp32))); });
  };
  CHECK(forward(layer("batch_norm")) ==
        "[Module] forward before initialize: the module (kind 'batch_norm') has no seed and no step yet. Call "
        "initialize of the model first; a Learner does.");
  CHECK(contains(forward(linear_spec(4, kBinary)), "forward before initialize: the module (kind 'linear')"));

  // A module of the program's own that asks for nothing but its parameter.
  class Own final : public Module {
   public:
    Own() : scale_(add_parameter("scale", {3}, {})) {}
    Var forward(const Var&) override { return scale_.read(); }
    Form plan(const Form& in, PlanRequests&) override { return in; }

   private:
    Parameter& scale_;
  } own;
  CHECK(contains(error_of([&] { own.forward(Var(Tensor::zeros({3}, dtypes::fp32))); }),
                 "[Parameter::read] parameter 'scale' ([3] fp32) has no values yet: initialize was not called."));
}
