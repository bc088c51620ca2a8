// prepare: which layer is held how, what it refuses, and that its place in a program does not matter.
#include <sstream>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"
#include "nn/activation_quantizer.h"
#include "nn/glob.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/label_loss.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec linear_of(int64_t out) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes["out"] = out;
  spec.attributes["bias"] = false;
  spec.weight.init = {"uniform", -1, 1};
  return spec;
}
LayerSpec plain(const std::string& kind) {
  LayerSpec spec;
  spec.kind = kind;
  return spec;
}

std::shared_ptr<Sequential> four_layers() {
  return make_sequential({linear_of(12), plain("relu"), linear_of(9), plain("relu"), linear_of(7), linear_of(3)}, 10);
}

// Two weights of its own: y = b(a(x)).
class Twin final : public Module {
 public:
  Twin() : up_(add_quantizable("up", {8, 10}, weights())), weight_(add_quantizable("weight", {4, 8}, weights())) {}
  Var forward(const Var& x) override { return weight_.linear(up_.linear(x)); }
  Form plan(const Form& in, PlanRequests& requests) override {
    PlanRequests of_up;
    return weight_.plan_linear(up_.plan_linear(in, requests), of_up);
  }

 private:
  static ParameterSpec weights() {
    ParameterSpec spec;
    spec.init = {"uniform", -1, 1};
    return spec;
  }
  Quantizable &up_, &weight_;
};

class Nest final : public Module {
 public:
  explicit Nest(std::shared_ptr<Module> inner) : inner_(std::move(inner)) { add_child("inner", inner_); }
  Var forward(const Var& x) override { return (*inner_)(x); }
  Form plan(const Form& in, PlanRequests& requests) override { return inner_->plan(in, requests); }
  PlanRequests serve(const PlanRequests& requests) override { return inner_->serve(requests); }

 private:
  std::shared_ptr<Module> inner_;
};

std::vector<std::string> recipes_of(const std::vector<LayerChoice>& choices) {
  std::vector<std::string> out;
  for (const LayerChoice& c : choices) out.push_back(c.quant ? c.quant->recipe + " by " + c.rule : "-");
  return out;
}

std::vector<std::string> paths_of(Module& model) {
  std::vector<std::string> out;
  for (const Parameter* p : model.parameters()) out.push_back(p->path());
  return out;
}

std::vector<uint32_t> values_of_all(Module& model) {
  std::vector<uint32_t> out;
  for (const Parameter* p : model.parameters()) {
    for (const Tensor& t : {p->value(), p->master()})
      if (t.defined())
        for (const uint32_t b : bits_of(t)) out.push_back(b);
    if (p->value().quant() && p->value().quant()->scale)
      for (const uint32_t b : bits_of(*p->value().quant()->scale)) out.push_back(b);
  }
  return out;
}

}  // namespace

TEST_CASE("globs match whole paths, with stars, question marks and sets") {
  struct Case {
    const char* glob;
    const char* text;
    bool matches;
  };
  const Case cases[] = {{"layers.3", "layers.3", true},
                        {"layers.3", "layers.31", false},
                        {"layers.*", "layers.3", true},
                        {"*", "layers.3.up", true},
                        {"*.up", "layers.3.up", true},
                        {"*.up", "layers.3.upper", false},
                        {"layers.?", "layers.3", true},
                        {"layers.?", "layers.31", false},
                        {"layers.[6-9]", "layers.7", true},
                        {"layers.[6-9]", "layers.5", false},
                        {"layers.[!6-9]", "layers.5", true},
                        {"layers.[!6-9]", "layers.7", false},
                        {"layers.[13]", "layers.3", true},
                        {"layers.[13]", "layers.2", false},
                        {"*a*b*", "xxaxxbxx", true},
                        {"*a*b*", "xxbxxaxx", false},
                        {"", "layers", false},
                        {"layers.[-x]", "layers.-", true},
                        {"layers.[]x]", "layers.]", true},
                        {"layers*", "layers", true},
                        {"l*s.*[0-9]", "layers.blk.4", true},
                        {"**", "", true}};
  for (const Case& c : cases) {
    INFO(c.glob << " on " << c.text);
    CHECK(detail::glob_matches(c.glob, c.text) == c.matches);
  }
  CHECK(contains(error_of([] { detail::check_glob("layers.[3"); }), "the glob 'layers.[3' has a '[' without ']'"));
  CHECK(contains(error_of([] { detail::check_glob("layers.[]"); }), "without ']'"));
  CHECK(contains(error_of([] { detail::check_glob(""); }), "is empty"));
  detail::check_glob("a[!b-c]*?");
}

TEST_CASE("later choices win: all, first, last, then the rules in order") {
  const auto model = four_layers();
  PrepareSpec spec;
  CHECK(recipes_of(choose_layers(*model, spec)) == std::vector<std::string>{"-", "-", "-", "-"});
  spec.all = find_recipe("8da4w");
  spec.first = find_recipe("int8wo");
  spec.last = find_recipe("none");
  CHECK(recipes_of(choose_layers(*model, spec)) ==
        std::vector<std::string>{"int8wo by first", "8da4w by all", "8da4w by all", "none by last"});
  spec.rules = {{"layers.[24]", find_recipe("w8a8")}, {"layers.4", find_recipe("nf4wo")}};
  const auto choices = choose_layers(*model, spec);
  CHECK(recipes_of(choices) ==
        std::vector<std::string>{"int8wo by first", "w8a8 by layers.[24]", "nf4wo by layers.4", "none by last"});
  CHECK(choices[1].layer == "layers.2");
  CHECK(choices[1].slot->weight().shape() == Shape{9, 12});
  CHECK_FALSE(choices[1].slot->weight().low_bit());  // nothing has changed
  prepare(*model, spec);
  CHECK(choices[0].slot->weight().spec().dtype() == dtypes::int8);
  CHECK(choices[0].slot->input_quantizer() == nullptr);
  CHECK(choices[1].slot->input_quantizer()->quant().spec.dtype == dtypes::int8);
  CHECK(choices[2].slot->weight().spec().dtype() == dtypes::nf4);
  CHECK_FALSE(choices[3].slot->weight().low_bit());
}

TEST_CASE("a rule that fits no layer or cannot be done changes nothing") {
  const auto model = four_layers();
  StepState state;
  model->initialize("layers", state);
  const auto before = values_of_all(*model);
  PrepareSpec spec;
  spec.all = find_recipe("int8wo");
  const auto refused = [&] { return error_of([&] { prepare(*model, spec); }); };
  spec.rules = {{"layers.7", find_recipe("none")}};
  CHECK(contains(refused(),
                 "[prepare] the rule 'layers.7' matches no layer: the quantizable layers are layers.0, "
                 "layers.2, layers.4, layers.5."));
  spec.rules = {{"layers.[4", find_recipe("none")}};
  CHECK(contains(refused(), "has a '[' without ']'"));
  LayerQuant bad = find_recipe("w8a8");
  bad.weight->scheme = "binary";
  spec.rules = {{"*.4", bad}};
  CHECK(contains(refused(), "[prepare] layer 'layers.4' by rule '*.4' (recipe w8a8): [binary] dtype int8"));
  bad = find_recipe("w8a8");
  bad.input->granularity = Granularity::groups(0);
  spec.rules = {{"*.4", bad}};
  CHECK(contains(refused(), "group size"));
  bad = find_recipe("w8a8");
  bad.weight.reset();
  bad.compute = Compute::kIntegerOut;
  spec.rules = {{"*.4", bad}};
  CHECK(contains(refused(), "compute: integer_out needs quantized weights"));
  bad = find_recipe("int8wo");
  bad.observer.emplace();
  spec.rules = {{"*.4", bad}};
  CHECK(contains(refused(), "an observer needs an input quantizer"));
  CHECK(values_of_all(*model) == before);
  spec = {};
  spec.all = find_recipe("int8wo");
  Sequential nothing;
  CHECK(contains(error_of([&] { prepare(nothing, spec); }), "no layer that can be quantized"));
}

TEST_CASE("prepare before and after initialize gives the same bits, for every scheme and master") {
  for (const std::string& name : recipe_names())
    for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone}) {
      INFO(name << ", master " << enum_name(master));
      PrepareSpec spec;
      spec.all = find_recipe(name);
      if (spec.all->weight && can_round_stochastically(*spec.all->weight))
        spec.all->weight->rounding = Rounding::kStochastic;
      if (spec.all->weight) spec.all->master = master;
      StepState one, two;
      one.seed = two.seed = 5;
      const auto early = four_layers(), late = four_layers();
      prepare(*early, spec);
      early->initialize("layers", one);
      late->initialize("layers", two);
      prepare(*late, spec);
      CHECK(paths_of(*early) == paths_of(*late));
      CHECK(values_of_all(*early) == values_of_all(*late));
    }
}

TEST_CASE("preparing twice with the same spec changes nothing, and codes follow a new one from the same masters") {
  const auto model = four_layers();
  StepState state;
  PrepareSpec spec;
  spec.all = find_recipe("w4a4");
  prepare(*model, spec);
  model->initialize("layers", state);
  const Tensor x = random_tensor({6, 10}, dtypes::fp32, 3);
  (*model)(x);  // takes first values of the inputs' steps
  Quantizable& slot = *model->quantizables()[1];
  slot.weight().learned()[0]->value().as<float>()[0] *= 3.0f;
  const auto before = values_of_all(*model);
  const ActivationQuantizer* input = slot.input_quantizer();
  prepare(*model, spec);
  CHECK(values_of_all(*model) == before);
  CHECK(slot.input_quantizer() == input);

  const auto masters = bits_of(slot.weight().master());
  PrepareSpec other;
  other.rules = {{"layers.2", find_recipe("int3wo")}};
  prepare(*model, other);
  CHECK(bits_of(slot.weight().master()) == masters);
  CHECK(slot.weight().value().dtype() == dtypes::int3);
  CHECK(slot.input_quantizer() == nullptr);
  CHECK(slot.weight().learned().empty());
  const auto paths = paths_of(*model);
  CHECK(std::count(paths.begin(), paths.end(), "layers.2.input.step") == 0);
  CHECK(std::count(paths.begin(), paths.end(), "layers.4.input.step") == 1);
  other.rules = {{"layers.2", find_recipe("none")}};
  prepare(*model, other);
  CHECK(bits_of(slot.weight().value()) == masters);
}

TEST_CASE("a module with two weights, inside others, has a path for each") {
  const auto model = std::make_shared<Sequential>();
  model->append(std::make_shared<Nest>(std::make_shared<Nest>(std::make_shared<Twin>())));
  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  spec.rules = {{"layers.0.inner.inner.up", find_recipe("w4a4")}};
  const auto choices = choose_layers(*model, spec);
  REQUIRE(choices.size() == 2);
  CHECK(choices[0].layer == "layers.0.inner.inner.up");
  CHECK(choices[1].layer == "layers.0.inner.inner");
  StepState state;
  model->initialize("layers", state);
  prepare(*model, spec);
  CHECK(paths_of(*model) == std::vector<std::string>{"layers.0.inner.inner.up", "layers.0.inner.inner.up.step",
                                                     "layers.0.inner.inner.weight",
                                                     "layers.0.inner.inner.up_input.step"});
  std::vector<std::string> ran;
  state.on_forward = [&](const std::string& path, const Tensor&, const Tensor&) { ran.push_back(path); };
  Form in;
  in.samples = 5;
  in.sample = {10};
  CHECK(model->plan(in).features() == 4);
  const Tensor x = random_tensor({5, 10}, dtypes::fp32, 3);
  state.training = false;
  const Tensor y = (*model)(x).value();
  CHECK(ran == std::vector<std::string>{"layers.0.inner.inner.up_input", "layers.0.inner.inner.input",
                                        "layers.0.inner.inner", "layers.0.inner", "layers.0", "layers"});
  convert(*model);
  CHECK(bits_of((*model)(x).value()) == bits_of(y));
}

TEST_CASE("a layer that is twice in the model, and a child of the input's name, are errors") {
  const auto model = std::make_shared<Sequential>();
  const auto layer = make_linear(10, 10, {});
  model->append(layer);
  model->append(layer);
  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  CHECK(contains(error_of([&] { prepare(*model, spec); }), "is twice in the model"));
  StepState state;
  CHECK(contains(error_of([&] { model->initialize("layers", state); }), "have the path"));

  class Clash final : public Module {
   public:
    explicit Clash(const std::string& child) : weight_(add_quantizable("weight", {4, 10}, {})) {
      add_child(child, make_linear(10, 10, {}));
    }
    Var forward(const Var& x) override { return weight_.linear(x); }
    Form plan(const Form& in, PlanRequests& requests) override { return weight_.plan_linear(in, requests); }

   private:
    Quantizable& weight_;
  };
  Clash input("input"), weight("weight");
  input.initialize("layers", state);
  CHECK(contains(error_of([&] { prepare(input, spec); }),
                 "the module has a child 'input', a name that the input's quantizer needs"));
  CHECK(input.children().size() == 1);
  CHECK(contains(error_of([&] { weight.initialize("layers", state); }), "have the path 'layers.weight'"));
  spec.rules = {{"layers", find_recipe("int8wo")}};
  prepare(input, spec);
}

TEST_CASE("convert needs codes, is done once, and nothing is prepared or switched after it") {
  const auto model = four_layers();
  CHECK(contains(error_of([&] { convert(*model); }), "[convert] the model has no codes before initialize"));
  StepState state;
  PrepareSpec spec;
  spec.all = find_recipe("w4a4");
  spec.last = find_recipe("none");
  prepare(*model, spec);
  model->initialize("layers", state);
  const Tensor x = random_tensor({6, 10}, dtypes::fp32, 3);
  (*model)(x);
  state.training = false;
  const auto y = bits_of((*model)(x).value());
  convert(*model);
  const auto values = values_of_all(*model);
  convert(*model);
  CHECK(values_of_all(*model) == values);
  CHECK(bits_of((*model)(x).value()) == y);
  for (const Parameter* p : model->parameters()) CHECK(p->spec().frozen);
  CHECK(paths_of(*model) == std::vector<std::string>{"layers.0.weight", "layers.0.input.step", "layers.2.weight",
                                                     "layers.2.input.step", "layers.4.weight", "layers.4.input.step",
                                                     "layers.5.weight"});
  CHECK(contains(error_of([&] { prepare(*model, spec); }),
                 "[prepare] layer 'layers.0' by rule 'all' (recipe w4a4): [Quantizable] the layer is converted"));
  CHECK(contains(error_of([&] { set_quant_mode(*model, {QuantSwitch::kOff, true}); }), "the layer is converted"));
}

TEST_CASE("recipes have names, users add theirs, and unknown ones suggest the nearest") {
  const auto names = recipe_names();
  for (const char* name :
       {"none",       "int8wo",    "int6wo", "int5wo",       "int4wo", "int4wo_symmetric", "int3wo", "int2wo",
        "ternary_wo", "binary_wo", "nf4wo",  "8da4w",        "w8a8",   "w8a8_static",      "w4a8",   "w4a4",
        "w2a2",       "w1a2",      "w1a1",   "ternary_int8", "int8",   "w4a8_int"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  for (const std::string& name : names) {
    const LayerQuant q = find_recipe(name);
    CHECK(q.recipe == name);
    CHECK(q == find_recipe(name));
    const auto model = four_layers();
    model->quantizables()[0]->check(q);
  }
  CHECK(contains(error_of([] { find_recipe("int4w"); }), "Did you mean 'int4wo'"));
  LayerQuant mine = find_recipe("w4a8");
  mine.weight->granularity = Granularity::groups(16);
  register_recipe("prepare_test_mine", mine);
  mine.recipe = "prepare_test_mine";
  CHECK(find_recipe("prepare_test_mine") == mine);
  CHECK(contains(error_of([&] { register_recipe("w4a8", mine); }), "exists already"));
}

TEST_CASE("an embedding uses the weight of a recipe, trains with it and is converted to equal bits") {
  for (const std::string& name : recipe_names()) {
    INFO(name);
    LayerSpec table = linear_of(1);
    table.kind = "embedding";
    table.attributes = {{"num", 9}, {"dim", 5}};
    const auto model = std::make_shared<Sequential>();
    model->append(make_layer(table, 3));
    model->append(make_layer(linear_of(4), 15));
    PrepareSpec spec;
    spec.all = find_recipe(name);
    prepare(*model, spec);
    StepState state;
    model->initialize("layers", state);
    Quantizable& slot = *model->quantizables()[0];
    CHECK(slot.kind() == Quantizable::Kind::kEmbedding);
    CHECK(slot.input_quantizer() == nullptr);
    CHECK_FALSE(slot.quant().input.has_value());
    CHECK(slot.weight().low_bit() == spec.all->weight.has_value());
    const Tensor ids =
        Tensor::from_elements({4, 3}, dtypes::int32, std::vector<double>{0, 8, 1, 1, 2, 3, 4, 4, 4, 7, 6, 5});
    const auto masters = bits_of(slot.weight().master());
    Optimizer optimizer({.name = "adam"});
    optimizer.attach(model->parameters());
    for (int64_t step = 1; step <= 2; ++step) {
      Tape tape;
      tape.backward(label_loss((*model)(ids), std::vector<int32_t>{0, 1, 2, 3}));
      const RequantKey due{state.seed, step};
      optimizer.step(0.05f, 4, &due);
    }
    CHECK(bits_of(slot.weight().master()) != masters);
    state.training = false;
    const auto before = bits_of((*model)(ids).value());
    convert(*model);
    CHECK(bits_of((*model)(ids).value()) == before);
    CHECK(summarize(*model)[0].kind == "embedding");
  }
}

TEST_CASE("a model prints its quantization layer by layer") {
  const auto model = make_sequential({linear_of(4), plain("relu"), linear_of(3), linear_of(2)}, 10);
  PrepareSpec spec;
  spec.all = find_recipe("int4wo_symmetric");
  spec.rules = {{"layers.2", find_recipe("w1a1")}, {"layers.3", find_recipe("none")}};
  prepare(*model, spec);
  std::ostringstream before;
  print_quantization(before, *model);
  CHECK(before.str() ==
        "layer     kind    shape   recipe            weight                    input                compute  "
        "codes x scales  bytes\n"
        "layers.0  linear  [4,10]  int4wo_symmetric  int4 symmetric group(32)  as is                packed   "
        "[-8, 7]         20\n"
        "layers.2  linear  [3,4]   w1a1              bint1 binary tensor       bint1 binary tensor  packed   "
        "[-1, 1]         3\n"
        "layers.3  linear  [2,3]   none              fp32                      as is                packed   "
        "                24\n"
        "weights: 47 bytes\n");
  StepState state;
  model->initialize("layers", state);
  set_quant_mode(*model, {QuantSwitch::kFrozen, true});
  std::ostringstream frozen;
  print_quantization(frozen, *model);
  CHECK(contains(frozen.str(), "int4 symmetric group(32) (frozen)  as is                packed   [-8, 7] x 0."));
  CHECK(contains(frozen.str(), "weights: 63 bytes\n"));
  set_quant_mode(*model, {QuantSwitch::kOff, true});
  const auto rows = summarize(*model);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].weight == "fp32 (off)");
  CHECK(rows[0].bytes == 160);
  CHECK(rows[1].input == "bint1 binary tensor (off)");
  CHECK(rows[2].weight == "fp32");

  LayerSpec quantize = plain("quantize");
  quantize.activation = ActivationQuant{quant_spec(dtypes::int8, "absmax")};
  const auto own = make_sequential({quantize, linear_of(4)}, 10);
  own->initialize("layers", state);
  std::ostringstream out;
  print_quantization(out, *own);
  CHECK(out.str() ==
        "layer     kind      shape   recipe  weight  input               compute  codes x scales  bytes\n"
        "layers.0  quantize                          int8 absmax tensor\n"
        "layers.1  linear    [4,10]  none    fp32    as is               packed                   160\n"
        "weights: 160 bytes\n");
}

TEST_CASE("a choice for a layer that shares a weight, or reads ids, has its whole effect or is an error") {
  const auto model = [] {
    ModelSpec spec;
    LayerSpec table = plain("embedding"), head = plain("head");
    table.attributes = {{"num", int64_t{7}}, {"dim", int64_t{4}}, {"flat", false}};
    head.attributes = {{"tie", std::string("layers.0")}, {"bias", true}};
    spec.input.sample = {3};
    spec.input.dtype = dtypes::int32;
    spec.input.ids = 7;
    spec.layers = {table, linear_of(4), head};
    return make_model(spec);
  };
  const LayerQuant int8 = find_recipe("int8wo"), int4 = find_recipe("int4wo_symmetric"), both = find_recipe("w8a8");
  const auto error = [&](const PrepareSpec& spec) { return error_of([&] { choose_layers(*model(), spec); }); };
  CHECK(error({.all = int4, .last = int8}) ==
        "[prepare] quant.last falls on 'layers.2', which has no weight of its own, but that of 'layers.0': got int8 "
        "absmax channel(0) weights, expected int4 symmetric group(32) as there. Name 'layers.0' in a rule to change "
        "both, or choose activations alone for 'layers.2'");
  CHECK(contains(error({.all = int4, .last = find_recipe("none")}), "quant.last falls on 'layers.2'"));
  CHECK(contains(error({.all = {}, .first = {}, .last = {}, .rules = {{"layers.2", int8}}}),
                 "rule 'layers.2' falls on 'layers.2'"));
  CHECK(contains(error({.all = int4, .first = both}),
                 "quant.first falls on 'layers.0', whose input are ids: got int8 activations (recipe w8a8), expected "
                 "weights alone, such as int8wo"));

  LayerQuant inputs;
  inputs.recipe = "custom";
  inputs.input = both.input;
  CHECK(error({.all = int4, .rules = {{"layers.2", inputs}}}) == "");
  CHECK(error({.all = both}) == "");
  CHECK(error({.all = both, .last = both}) == "");
  CHECK(error({.all = int4, .rules = {{"layers.0", int8}, {"layers.2", int8}}}) == "");
  CHECK(error({.rules = {{"layers.[01]", both}}}) == "");

  const auto one = make_sequential({linear_of(4)}, 10);
  CHECK(error_of([&] { choose_layers(*one, {.first = int8, .last = int4}); }) ==
        "[prepare] quant.first and quant.last fall on one layer, 'layers.0', the only one that can be quantized. Give "
        "one of them");
  CHECK(error_of([&] { choose_layers(*one, {.first = int8, .last = int8}); }) == "");

  // Keys of how the weight trains, and of a product that an embedding does not have.
  LayerQuant narrow = int8, simulated = int8;
  narrow.master = MasterKind::kBf16;
  simulated.compute = Compute::kSimulated;
  CHECK(error({.all = int8, .rules = {{"layers.2", narrow}}}) ==
        "[prepare] rule 'layers.2' falls on 'layers.2', which has no weight of its own, but that of 'layers.0': its "
        "master differs from the one there. Name 'layers.0' in a rule to change both");
  CHECK(error({.rules = {{"layers.[02]", narrow}}}) == "");
  CHECK(error({.all = int8, .rules = {{"layers.2", simulated}}}) == "");
  CHECK(error({.all = int8, .rules = {{"layers.0", simulated}}}) ==
        "[prepare] rule 'layers.0' falls on 'layers.0', which reads rows and multiplies nothing: got compute: "
        "simulated, expected packed");
}
