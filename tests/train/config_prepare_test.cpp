// recipe, first, last, rules, phases, budget, init_from and log.quantization: what they say, what they contradict, and
// that they are written back.
#include "config/choices.h"
#include "config/specs.h"
#include "config/texts.h"
#include "train/config_support.h"

namespace bitgrad {

using namespace test;

namespace {

RunConfig read(const Strings& overrides) {
  RunConfig c = parse_config(kFloat, "f.yaml", overrides);
  const std::string text = to_yaml(c);
  INFO(text);
  const RunConfig again = parse_config(text, "r.yaml");
  CHECK((again == c));
  CHECK(to_yaml(again) == text);
  return c;
}

// The one finding: "line:col: message" or "arg N: message"; several: the whole report.
std::string finding(const std::string& text, const Strings& overrides = {}) {
  try {
    parse_config(text, "f.yaml", overrides);
  } catch (const ConfigError& error) {
    if (error.diagnostics().size() != 1) return error.what();
    const ConfigDiagnostic& d = error.diagnostics()[0];
    return concat(d.mark.argument ? concat("arg ", d.mark.argument) : concat(d.mark.line, ':', d.mark.col), ": ",
                  d.message);
  }
  return "";
}
LayerQuant rule_of(const std::string& keys) {
  const RunConfig c = read({"quant.rules=[{layers: layers.2, " + keys + "}]"});
  return config::layer_quant(c.quant.prepare.rules.at(0).quant);
}
bool same(const QuantSpec& a, const QuantSpec& b) {
  return a.dtype == b.dtype && a.scheme == b.scheme && a.granularity == b.granularity && a.alpha == b.alpha &&
         a.rounding == b.rounding && a.ste == b.ste && a.eps == b.eps && a.pow2 == b.pow2 && a.div == b.div;
}

}  // namespace

TEST_CASE("recipe, first, last and rules become the library's own spec") {
  const RunConfig c = read({"quant.recipe=int4wo", "quant.first=8da4w", "quant.last=none",
                            "quant.rules=[{layers: \"layers.[1-3]\", recipe: int4wo, group: 64}, {layers: layers.2, "
                            "recipe: w8a8, compute: simulated}]"});
  const PrepareSpec spec = config::prepare_spec(c.quant.prepare);
  CHECK(spec.all->recipe == "int4wo");
  CHECK(spec.first->recipe == "8da4w");
  CHECK(spec.last->recipe == "none");
  CHECK_FALSE(spec.last->weight.has_value());
  REQUIRE(spec.rules.size() == 2);
  CHECK(spec.rules[0].layers == "layers.[1-3]");
  CHECK(spec.rules[0].quant.recipe == "int4wo");
  CHECK((spec.rules[0].quant.weight->granularity == Granularity::groups(64)));
  CHECK((spec.all->weight->granularity == Granularity::groups(32)));
  CHECK(spec.rules[1].layers == "layers.2");
  CHECK(spec.rules[1].quant.compute == Compute::kSimulated);
  CHECK(config::prepare_spec(read({}).quant.prepare).empty());
}

TEST_CASE("every recipe can be named, and is what the library calls so") {
  for (const std::string& name : recipe_names()) {
    INFO(name);
    const LayerQuant quant = rule_of("recipe: " + name), wanted = find_recipe(name);
    CHECK(quant.recipe == name);
    REQUIRE(quant.weight.has_value() == wanted.weight.has_value());
    if (quant.weight) CHECK(same(*quant.weight, *wanted.weight));
    REQUIRE(quant.input.has_value() == wanted.input.has_value());
    if (quant.input) CHECK(same(*quant.input, *wanted.input));
    CHECK(quant.compute == wanted.compute);
    CHECK(quant.latent_clamp == wanted.latent_clamp);
    CHECK(config::prepare_spec(read({"quant.recipe=" + name}).quant.prepare).all->recipe == name);
  }
}

TEST_CASE("output_rounding is of networks of integers, and the rule of tests is refused with its reason") {
  CHECK(rule_of("recipe: int8").output_rounding == OutputRounding::kDouble);
  CHECK(rule_of("recipe: int8, output_rounding: float").output_rounding == OutputRounding::kFloat);
  CHECK(rule_of("recipe: w4a8_int, output_rounding: single").compute == Compute::kInteger);
  const auto error = [](const std::string& keys) {
    return finding(kFloat, {"quant.rules=[{layers: \"*\", " + keys + "}]"});
  };
  CHECK(contains(error("recipe: int8, output_rounding: ruy"), "is for tests alone. Use double, single or float"));
  CHECK(contains(error("recipe: int8, output_rounding: away"), "double, single, float"));
  CHECK(contains(error("recipe: w8a8, output_rounding: float"), "output_rounding is of compute: integer"));
  CHECK(contains(error("recipe: w8a8, compute: integer"),
                 "compute: integer needs int8 inputs with one scale per tensor"));
  CHECK(contains(small_error({"quant.compute=integer"}), "compute: integer is of the whole model"));
}

TEST_CASE("weights and activations of a rule replace the recipe's parts") {
  const LayerQuant q = rule_of(
      "recipe: w1a1, weights: {dtype: int3, scheme: lsq, granularity: channel, master: bf16, grad: bf16, latent_clamp: "
      "2, eps: 1e-6, learned: {lr_factor: 0.5, weight_decay: 0.25}}");
  CHECK(q.recipe == "custom");
  CHECK(q.weight->dtype == dtypes::int3);
  CHECK(q.weight->scheme == "lsq");
  CHECK((q.weight->granularity == Granularity::channel(0)));
  CHECK(q.weight->eps == 1e-6f);
  CHECK(q.master == MasterKind::kBf16);
  CHECK(q.grad == dtypes::bf16);
  CHECK(q.latent_clamp == 2.0f);
  CHECK(q.learned.lr_factor == 0.5f);
  CHECK(q.learned.weight_decay == 0.25f);
  CHECK(q.input.has_value() == find_recipe("w1a1").input.has_value());
  const LayerQuant in = rule_of(
      "recipe: int8wo, activations: {dtype: uint8, scheme: affine, observer: {name: percentile, percentile: 99}, grad: "
      "bf16}, compute: simulated");
  CHECK(in.recipe == "custom");
  CHECK(same(*in.weight, *find_recipe("int8wo").weight));
  CHECK(in.input->dtype == dtypes::uint8);
  CHECK(in.observer->percentile == 99.0f);
  CHECK(in.input_grad == dtypes::bf16);
  CHECK(in.compute == Compute::kSimulated);
  const LayerQuant none = rule_of("recipe: int8wo, weights: {dtype: fp32}");
  CHECK_FALSE(none.weight.has_value());
  // Keys of quant are not merged into rules.
  const RunConfig c = read({"quant.weights={dtype: int8, granularity: channel, rounding: stochastic}",
                            "quant.rules=[{layers: layers.2, weights: {dtype: int4}}]"});
  CHECK(c.quant.prepare.rules[0].quant.weights->quant->rounding == Rounding::kNearest);
  CHECK(c.layers[2].weight.quant->rounding == Rounding::kStochastic);
}

TEST_CASE("phases have a start, a recipe and switches") {
  const RunConfig c =
      read({"quant.recipe=int8wo",
            "quant.phases=[{from: 0 steps, quantization: off}, {from: 2 epochs, quantization: on}, {from: "
            "900 steps, recipe: int4wo, last: int8wo}, {from: 6 epochs, rules: [{layers: layers.0, "
            "recipe: w4a4}], quantization: frozen, observers: false}]"});
  REQUIRE(c.quant.phases.size() == 4);
  const auto& [first, second, third, fourth] =
      std::tie(c.quant.phases[0], c.quant.phases[1], c.quant.phases[2], c.quant.phases[3]);
  CHECK(first.from == Quantity{0, Quantity::Unit::kSteps});
  CHECK_FALSE(first.prepare.has_value());
  CHECK((first.mode == QuantMode{QuantSwitch::kOff, true}));
  CHECK((second.mode == QuantMode{}));
  CHECK(third.from == Quantity{900, Quantity::Unit::kSteps});
  CHECK(third.prepare->recipe == "int4wo");
  CHECK_FALSE(third.prepare->first.has_value());
  CHECK(third.prepare->last == "int8wo");
  CHECK(third.prepare->rules.empty());
  CHECK_FALSE(fourth.prepare->recipe.has_value());
  CHECK(fourth.prepare->rules.at(0).quant.recipe == "w4a4");
  CHECK((fourth.mode == QuantMode{QuantSwitch::kFrozen, false}));
  CHECK(c.quant.prepare.recipe == "int8wo");
}

TEST_CASE("a budget is a size or a map") {
  const Strings from{"model.init_from=runs/float run"};
  const auto budget = [&](const std::string& value) { return *read({from[0], "quant.budget=" + value}).quant.budget; };
  CHECK(budget("60 KB").bytes == 60000);
  CHECK(budget("60 KB").bits == std::vector<int64_t>{8, 4, 3, 2, 1});
  CHECK(budget("60 KB").samples == 1000);
  CHECK(budget("{bytes: 1.5 MB}").bytes == 1500000);
  CHECK(budget("{bytes: 64KiB, bits: [4, 2], samples: 20}").bytes == 65536);
  CHECK(budget("{bytes: 64KiB, bits: [4, 2], samples: 20}").bits == std::vector<int64_t>{4, 2});
  CHECK(budget("{bytes: 64KiB, bits: [4, 2], samples: 20}").samples == 20);
  CHECK(read(from).init_from == "runs/float run");
  CHECK(read({}).init_from.empty());
}

TEST_CASE("the report of quantization has a time or is off") {
  CHECK(read({}).log.quantization == Quantity{1, Quantity::Unit::kEpochs});
  CHECK(read({"log.quantization=500 steps"}).log.quantization == Quantity{500, Quantity::Unit::kSteps});
  for (const char* off : {"off", "\"off\""})  // JSON and Python have words in quotes
    CHECK(read({concat("log.quantization=", off)}).log.quantization == std::nullopt);
  for (const char* bad : {"on", "0 epochs", "5", "none"}) {
    INFO(bad);
    CHECK(contains(finding(kFloat, {concat("log.quantization=", bad)}), "arg 1: log.quantization: "));
  }
}

TEST_CASE("sizes in bytes are whole, with units of 1000 or 1024") {
  const auto bytes = [](const std::string& text) {
    int64_t value = -1;
    return config::parse_bytes(text, value) == NumberResult::kOk ? value : -1;
  };
  CHECK(bytes("7") == 7);
  CHECK(bytes("7 B") == 7);
  CHECK(bytes("0.1 KB") == 100);
  CHECK(bytes("1.001 KB") == 1001);
  CHECK(bytes("60KB") == 60000);
  CHECK(bytes("2 GB") == 2000000000);
  CHECK(bytes("1 KiB") == 1024);
  CHECK(bytes("0.5 MiB") == 524288);
  CHECK(bytes("3 GiB") == int64_t{3} << 30);
  for (const char* bad : {"", " ", "KB", "0.3 KiB", "1.5", "1e3", "60 kb", "60  KB", "60 KB ", "1 TB", "0x1", "1 2"}) {
    INFO(bad);
    CHECK(bytes(bad) == -1);
  }
}

TEST_CASE("what is wrong with the form of a glob is named") {
  for (const char* good :
       {"layers.3", "*", "layers.?", "layers.[0-9]", "layers.[!a-c]*", "[abc]", "a-b", "layers.[-1]"}) {
    INFO(good);
    CHECK(config::glob_fault(good).empty());
  }
  CHECK(contains(config::glob_fault("layers.[1"), "'[' is not closed"));
  CHECK(contains(config::glob_fault("layers.[!"), "'[' is not closed"));
  CHECK(contains(config::glob_fault("layers.1]"), "']' without '['"));
  CHECK(contains(config::glob_fault("[]"), "empty"));
  CHECK(contains(config::glob_fault("[!]"), "empty"));
  CHECK(contains(config::glob_fault("x[a[b]]"), "'[' inside '[...]'"));
  CHECK(contains(config::glob_fault("[9-0]"), "'9-0' is descending"));
}

TEST_CASE("contradictions among recipes, rules, phases and budget are reported at their place") {
  struct Case {
    std::string lines, wanted;
    Strings overrides = {};
  };
  const std::vector<Case> cases{
      {"  recipe: int4w0\n", "11:11: quant.recipe: got 'int4w0', did you mean 'int4wo'? Expected one of "},
      {"  first: [int4wo]\n", "11:10: quant.first: got a list, expected one of "},
      {"  rules: []\n", "11:10: quant.rules: the list is empty; leave the key out"},
      {"  rules: {layers: layers.0}\n",
       "11:10: quant.rules: got a map, expected a list of maps, each with keys layers"},
      {"  rules: [w4a4]\n", "11:11: quant.rules.0: got 'w4a4', expected a map with keys layers, recipe, group"},
      {"  rules:\n    - {recipe: w4a4}\n", "12:7: missing required key 'quant.rules.0.layers': a glob such as"},
      {"  rules:\n    - {layers: layers.0}\n",
       "12:7: quant.rules.0: sets nothing for its layers; expected recipe, weights"},
      {"  rules:\n    - {layers: layers.0, compute: simulated}\n", "12:7: quant.rules.0: sets nothing for its layers"},
      {"  rules:\n    - {layers: \"layers.[0\", recipe: w4a4}\n", "12:16: quant.rules.0.layers: '[' is not closed in"},
      {"  rules:\n    - {layer: layers.0, recipe: w4a4}\n",
       "12:8: unknown key 'layer' in 'quant.rules.0'. Did you mean 'layers'?"},
      {"  rules:\n    - {layers: layers.0, recipe: w8a8, group: 64}\n",
       "12:47: quant.rules.0: group requires a recipe with groups ("},
      {"  rules:\n    - {layers: layers.0, group: 64, weights: {dtype: int4}}\n",
       "12:33: quant.rules.0: group belongs to the recipe, but weights replaces it"},
      {"  rules:\n    - {layers: layers.0, recipe: int4wo, group: 0}\n",
       "12:49: quant.rules.0.group: 0 is out of range"},
      {"  rules:\n    - {layers: layers.0, weights: {dtype: int4, init: zeros}}\n",
       "12:55: quant.rules.0.weights: init belongs to the layer; set it in the layer's weights or in quant.weights"},
      {"  rules:\n    - {layers: layers.0, weights: {dtype: int4, scheme: ternary}}\n",
       "12:57: quant.rules.0.weights: scheme ternary needs dtype ternary, got int4"},
      {"  rules:\n    - {layers: layers.0, weights: {dtype: int4, master: none}}\n",
       "12:57: quant.rules.0.weights: without a master scales are fitted row by row"},
      {"  rules:\n    - {layers: layers.0, activations: {scheme: affine}}\n",
       "12:48: quant.rules.0.activations.scheme needs a dtype"},
      {"  rules:\n    - {layers: layers.0, activations: {}}\n", "12:26: quant.rules.0.activations needs a dtype"},
      {"  rules:\n    - {layers: layers.0, activations: {dtype: bint1, observer: {name: mse}}}\n",
       "12:71: quant.rules.0.activations.observer: an observer measures a range, scheme binary uses none"},
      {"  rules:\n    - {layers: layers.0, weights: {dtype: int4, scheme: lsq}, activations: {dtype: int4, scheme: "
       "lsq, learned: {lr_factor: 0.5}}}\n",
       "12:112: quant.rules.0.activations: learned of weights and of activations must be the same in one layer"},
      {"  rules:\n    - {layers: layers.0, weights: {dtype: int4, scheme: lsq, learned: {lr_factor: 2}}, activations: "
       "{dtype: int4, scheme: lsq}}\n",
       "12:71: quant.rules.0.weights: learned of weights and of activations must be the same in one layer"},
      {"  recipe: int4wo\n  compute: simulated\n",
       "12:12: quant.compute is for layers without a recipe, and recipes or rules set all that use it"},
      {"  recipe: w8a8\n  compute: integer_out\n", "12:12: quant.compute is for layers without a recipe, "},
      {"  compute: simulated\n  rules: [{layers: \"*\", recipe: w8a8}]\n",
       "11:12: quant.compute is for layers without a "},
      {"  compute: simulated\n  phases: [{from: 0 steps, quantization: off}, {from: 2 epochs, recipe: w8a8}]\n",
       "11:12: quant.compute is for layers without a recipe, "},
      {"  rules: [{layers: layers.0, group: 32}]\n  recipe: int4wo\n",
       "11:11: quant.rules.0: sets nothing for its layers; expected recipe, weights or activations (a rule does not "
       "inherit quant.recipe)"},
      {"  phases: []\n", "11:11: quant.phases: the list is empty; leave the key out"},
      {"  phases: [{quantization: off}]\n", "11:12: missing required key 'quant.phases.0.from'"},
      {"  phases: [{from: 5}]\n", "11:19: quant.phases.0.from: got '5', expected a whole number from 0 and a unit"},
      {"  phases: [{from: 0 steps, quantization: no}]\n",
       "11:42: quant.phases.0.quantization: got 'no', did you mean 'on'? Expected one of on, off, frozen"},
      {"  phases: [{from: 0 steps, observers: off}]\n", "11:39: quant.phases.0.observers: got 'off', expected true or"},
      {"  phases: [{from: 1 epochs}]\n", "11:19: quant.phases.0.from (1 epochs): the first phase starts at 0 steps"},
      {"  phases: [{from: 0 epochs}, {from: 0 steps}]\n",
       "11:37: quant.phases.1.from (0 steps): only the first phase starts at 0"},
      {"  phases: [{from: 0 steps}, {from: 3 epochs}, {from: 9 steps}, {from: 3 epochs}]\n",
       "11:71: quant.phases.3.from (3 epochs) is not after quant.phases.1.from (3 epochs)"},
      {"  recipe: int4wo\n  phases: [{from: 0 steps, last: w4a4}]\n",
       "12:34: quant.phases.0 sets recipe, first, last or rules, so those of quant never apply"},
      {"  phases: [{from: 0 steps, rules: []}]\n", "11:35: quant.phases.0.rules: the list is empty"},
      {"  phases: [{from: 0 steps, rules: [{layers: layers.0, recipe: x}]}]\n",
       "11:63: quant.phases.0.rules.0.recipe: got 'x', expected one of "},
      {"  budget: 60 KB\n",
       "11:11: quant.budget needs model.init_from: bits are selected by their effect on a trained"},
      {"  budget: {bits: [8]}\n", "11:3: missing required key 'quant.budget.bytes'"},
      {"  budget: {bytes: 60 KB, bits: [8, 9]}\n",
       "11:32: quant.budget.bits: 9 is out of range [1, 8]",
       {"model.init_from=x"}},
      {"  budget: {bytes: 60 KB, bits: [8, 4, 8]}\n",
       "11:32: quant.budget.bits: 8 is twice in the list",
       {"model.init_from=x"}},
      {"  budget: {bytes: 60 KB, bits: 8}\n",
       "11:32: quant.budget.bits: got '8', expected a list of different whole",
       {"model.init_from=x"}},
      {"  budget: 60 K\n", "11:11: quant.budget.bytes: got '60 K', expected a whole number of bytes, or a number and"},
      {"  budget: 60 KB\n  recipe: int4wo\n",
       "11:11: quant.budget selects the recipe of each layer, so quant.recipe cannot be set too"},
      {"  budget: 60 KB\n  phases: [{from: 0 steps}]\n",
       "11:11: quant.budget selects the recipe of each layer, so quant.ph"},
      {"  budget: 60 KB\n  compute: simulated\n",
       "11:11: quant.budget selects the recipe of each layer, so quant.compute cannot be set too",
       {"model.init_from=x"}},
      {"  bugdet: 60 KB\n", "11:3: unknown key 'bugdet' in 'quant'. Did you mean 'budget'?"},
  };
  for (const Case& c : cases) {
    INFO(c.lines);
    const std::string found = finding(with_quant(c.lines), c.overrides);
    INFO(found);
    CHECK(found.starts_with(c.wanted));
  }
}

TEST_CASE("a rule that names no layer is found at its glob, with the layers that there are") {
  const std::string found = finding(
      with_quant("  rules:\n    - {layers: layers.0, recipe: w4a4}\n    - {layers: \"layers.1\", recipe: w4a4}\n"));
  CHECK(found.starts_with("13:16: quant.rules.1.layers: "));
  CHECK(contains(found, "matches no layer"));
  CHECK(contains(found, "layers.0, layers.2, layers.4"));
  CHECK(finding(kFloat, {"quant.phases=[{from: 0 steps}, {from: 3 steps, rules: [{layers: linear*, recipe: w4a4}]}]"})
            .starts_with("arg 1: quant.phases.1.rules.0.layers: "));
  CHECK(finding(with_quant("  rules:\n    - {layers: \"layers.[!13]\", recipe: w4a4}\n")) == "");
}

TEST_CASE("a recipe that a layer refuses is found at the rule that chose it") {
  // The layer's input is codes already.
  const std::string text =
      with_quant("  activations: {dtype: int8}\n  rules:\n    - {layers: \"layers.?\", recipe: 8da4w}\n");
  std::string codes = text;
  const std::string relu = "    - relu: {}\n    - linear: {out: 10}";
  codes.replace(codes.find(relu), relu.size(), "    - quantize: {}\n    - linear: {out: 10}");
  CHECK(finding(text) == "");
  const std::string found = finding(codes);
  INFO(found);
  CHECK(found.starts_with("13:16: model.layers.4.linear: "));
}

TEST_CASE("a layer that cannot be switched off is found before any phase starts") {
  const std::string rule =
      "quant.rules=[{layers: layers.4, recipe: w8a8, activations: {dtype: int8}, compute: integer_out}]";
  std::string text = kFloat;
  text.replace(text.find("out: 10"), 7, "out: 10, bias: false");
  text.insert(text.find("quant:"), "    - dequantize: {}\n");
  CHECK(finding(text, {rule}) == "");
  CHECK(finding(text, {rule, "quant.phases=[{from: 0 steps}, {from: 3 steps, quantization: frozen}]"}) == "");
  const std::string found = finding(text, {rule, "quant.phases=[{from: 0 steps}, {from: 3 steps, quantization: off}]"});
  INFO(found);
  CHECK(found ==
        "arg 2: model.layers.4.linear: compute: integer_out returns int32 and has no float equivalent: it cannot be "
        "switched off. Use compute: packed.");
}

TEST_CASE("quant.compute is that of some layer in some phase") {
  const std::string simulated = "quant.compute=simulated", codes = "quant.weights={dtype: int8}";
  for (const Strings& keys :
       std::vector<Strings>{{simulated},
                            {simulated, codes},
                            {simulated, codes, "quant.first=w8a8"},
                            {simulated, codes, "quant.rules=[{layers: \"layers.[24]\", recipe: w8a8}]"},
                            {simulated, codes, "quant.phases=[{from: 0 steps}, {from: 2 epochs, recipe: w8a8}]"},
                            {simulated, codes, "quant.phases=[{from: 0 steps, quantization: off}, {from: 2 epochs}]"},
                            {simulated, codes, "quant.phases=[{from: 0 steps, quantization: off}]"},
                            // A layer's own keys may wait for nothing: they stand where a reader sees them.
                            {"model.layers.2.linear.compute=simulated", "quant.recipe=w8a8"}}) {
    INFO(keys.back());
    CHECK_NOTHROW(read(keys));
  }
  CHECK(finding(kFloat, {simulated, codes, "quant.first=w8a8", "quant.rules=[{layers: \"layers.[24]\", recipe: w8a8}]"})
            .starts_with("arg 1: quant.compute is for layers without a recipe"));
}

TEST_CASE("products of the backward may need what a recipe gives") {
  const Strings int8{"quant.backward={gx: int8}", "model.layers.0.linear.backward={gx: fp32}"};
  CHECK(contains(finding(kFloat, int8), "arg 1: model.layers.2.linear.backward.gx: "));
  CHECK(finding(kFloat, {int8[0], int8[1], "quant.recipe=w8a8"}) == "");
  CHECK(read({int8[0], int8[1], "quant.recipe=w8a8"}).layers[2].product.gx == ProductMode::kInt8);
  CHECK(finding(kFloat, {int8[0], int8[1], "quant.recipe=w8a8",
                         "quant.phases=[{from: 0 steps, quantization: off}, {from: 3 steps}]"}) == "");
}

TEST_CASE("overrides reach into rules and phases, and reset them") {
  const std::string text = with_quant(
      "  recipe: int4wo\n  rules:\n    - {layers: layers.0, recipe: int4wo, group: 64}\n  phases:\n    - {from: 0 "
      "steps}\n    - {from: 2 epochs, quantization: off}\n");
  const auto with = [&](const Strings& overrides) { return parse_config(text, "f.yaml", overrides); };
  CHECK(with({"~quant.rules.0.group", "quant.rules.0.recipe=w4a4"}).quant.prepare.rules[0].quant.recipe == "w4a4");
  CHECK_FALSE(with({"~quant.rules.0.group"}).quant.prepare.rules[0].quant.group.has_value());
  CHECK(with({"~quant.rules"}).quant.prepare.rules.empty());
  CHECK(with({"~quant.phases"}).quant.phases.empty());
  CHECK(with({"~quant.phases.1.quantization"}).quant.phases[1].mode.quantization == QuantSwitch::kOn);
  CHECK(with({"quant.phases.1.from=7 steps"}).quant.phases[1].from == Quantity{7, Quantity::Unit::kSteps});
  CHECK(with({"quant.rules.0.layers=\"*\""}).quant.prepare.rules[0].layers == "*");
  CHECK(contains(finding(text, {"quant.rules.0.layers=*"}), "arg 1: a text that starts with '*' needs quotes"));
  CHECK(contains(finding(text, {"quant.rules.0.layers=*.3"}), "in quotes where a text starts with '*'"));
  CHECK(contains(finding(text, {"~quant.rules.0.layers"}), "arg 1: 'quant.rules.0.layers' is required"));
  CHECK(contains(finding(text, {"~quant.rules.1.group"}), "is not set in the file"));
  CHECK(contains(finding(text, {"~quant.rules.0"}), "is not set in the file"));
  CHECK(contains(finding(text, {"quant.rules.1.recipe=w4a4"}), "'quant.rules' is a list of 1 items"));
  CHECK(contains(finding(text, {"quant.rules.0.recipe=w8a8"}),
                 "arg 1: quant.rules.0: group requires a recipe with groups"));
  CHECK(contains(finding(text, {"quant.phases.0.from=3 epochs"}), "arg 1: quant.phases.0.from (3 epochs): the first"));
  CHECK(contains(finding(text, {"quant.budget=60 KB", "model.init_from=x"}),
                 "arg 1: quant.budget selects the recipe of each layer, so quant.recipe cannot be set too"));
  CHECK(parse_config(text, "f.yaml",
                     {"~quant.phases", "~quant.rules", "~quant.recipe", "quant.budget=60 KB", "model.init_from=x"})
            .quant.budget->bytes == 60000);
}

TEST_CASE("weights of a rule without a master need requantization in each step") {
  const std::string weights =
      "rules: [{layers: layers.0, weights: {dtype: int8, scheme: absmax, granularity: channel, master: none}}]";
  const Strings batch{"batch.global=100", "batch.micro=50"};
  const std::string often = "quant.requantize_every=4";
  CHECK(read({batch[0], batch[1], "quant={" + weights + "}"}).quant.prepare.rules[0].quant.weights->master ==
        MasterKind::kNone);
  CHECK(finding(kFloat, {batch[0], batch[1], "quant={" + weights + "}", often})
            .starts_with("arg 4: quant.requantize_every (4) must be A = batch.global / batch.micro = 2: "
                         "quant.rules.0.weights has master none"));
  CHECK(finding(kFloat,
                {batch[0], batch[1], "quant={phases: [{from: 0 steps}, {from: 2 steps, " + weights + "}]}", often})
            .starts_with("arg 4: quant.requantize_every (4) must be A = batch.global / batch.micro = 2: "
                         "quant.phases.1.rules.0.weights has master none"));
}

TEST_CASE("what a program writes into rules reads back") {
  RunConfig c = read({"model.init_from=x", "quant.budget=60 KB"});
  c.quant.budget.reset();
  for (const char* layer : {"layers.0", "layers.2", "layers.4"}) {
    QuantRuleConfig rule;
    rule.layers = layer;
    rule.quant.recipe = "int4wo";
    rule.quant.group = 16;
    c.quant.prepare.rules.push_back(rule);
  }
  c.quant.prepare.rules[1].quant = {};  // fp32
  c.quant.prepare.rules[2].quant.group.reset();
  c.quant.prepare.recipe = "int8wo";
  const RunConfig again = parse_config(to_yaml(c), "r.yaml");
  CHECK((again == c));
  CHECK(again.quant.prepare.rules[1].quant.recipe == "none");
  // A layer's weights as a rule's: what the layer keeps is not written.
  const RunConfig low = read({"quant.weights={dtype: int4, granularity: channel, init: zeros, moments: int8}"});
  c.quant.prepare.rules[0].quant = {"none", {}, low.quant.weights, {}, Compute::kSimulated};
  const ParameterSpec back = *parse_config(to_yaml(c), "r.yaml").quant.prepare.rules[0].quant.weights;
  CHECK(back.init == Init{"glorot_uniform"});
  CHECK(*back.quant == *low.quant.weights.quant);
}

}  // namespace bitgrad
