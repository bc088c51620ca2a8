// Bits under a budget: the knapsack against brute force, and the configuration that comes out.
#include "bitgrad/tools/budget.h"

#include <random>

#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Layers = std::vector<std::vector<BudgetChoice>>;

// Every combination in lexicographic order; the first of the least cost, then fewest bytes.
std::vector<size_t> brute_force(const Layers& layers, int64_t budget) {
  std::vector<size_t> at(layers.size(), 0), best;
  double best_cost = 0;
  int64_t best_bytes = 0;
  for (;;) {
    double cost = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      cost += layers[i][at[i]].cost;
      bytes += layers[i][at[i]].bytes;
    }
    const bool better = best.empty() || cost < best_cost || (cost == best_cost && bytes < best_bytes);
    if (bytes <= budget && better) {
      best = at;
      best_cost = cost;
      best_bytes = bytes;
    }
    size_t i = layers.size();
    while (i > 0 && ++at[i - 1] == layers[i - 1].size()) at[--i] = 0;
    if (i == 0) return best;
  }
}

LayerEffect effect(const std::string& recipe, int64_t bytes, double loss_change, double noise) {
  LayerEffect e;
  e.recipe = recipe;
  e.bytes = bytes;
  e.loss_change = loss_change;
  e.noise = noise;
  return e;
}

// A float model to start from: 30 steps on the digits.
constexpr const char* kFloat = R"yaml(version: 1
run: {name: float, seed: 5}
data:
  train: {format: digits, size: 300}
  test: {format: digits, size: 60}
model:
  layers:
    - linear: {out: 16}
    - relu: {}
    - linear: {out: 10}
batch: {global: 20, micro: 20}
optim: {name: adam, lr: 0.01}
train: {stop: 30 steps}
checkpoint: {every: 30 steps}
)yaml";

}  // namespace

TEST_CASE("the knapsack of bits finds what trying every combination finds") {
  std::mt19937 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  for (int trial = 0; trial < 3000; ++trial) {
    Layers layers(static_cast<size_t>(1 + below(5)));
    int64_t lower = 0;
    for (auto& choices : layers) {
      choices.resize(static_cast<size_t>(1 + below(5)));
      int64_t smallest = INT64_MAX;
      for (BudgetChoice& c : choices) {
        c = {below(12), static_cast<double>(below(9))};  // whole costs: sums are exact, ties are many
        smallest = std::min(smallest, c.bytes);
      }
      lower += smallest;
    }
    const int64_t budget = lower + below(30);
    INFO("trial " << trial << ", budget " << budget);
    REQUIRE(pick_choices(layers, budget) == brute_force(layers, budget));
  }
  CHECK(pick_choices({}, 0).empty());
}

TEST_CASE("more sums than can be kept are thinned out within the budget, and close to the best") {
  // All 3^14 sums differ, and each is the best for its bytes: the cost is minus the bytes.
  Layers layers;
  int64_t power = 1;
  for (int i = 0; i < 14; ++i, power *= 3) {
    auto& choices = layers.emplace_back();
    for (const int64_t digit : {0, 1, 2}) choices.push_back({digit * power, -static_cast<double>(digit * power)});
  }
  for (const int64_t budget : {power / 2, power - 1, power / 3 + 5}) {
    const std::vector<size_t> picked = pick_choices(layers, budget);
    int64_t bytes = 0;
    for (size_t i = 0; i < picked.size(); ++i) bytes += layers[i][picked[i]].bytes;
    CHECK(bytes <= budget);
    CHECK(bytes >= budget - 14 * (budget / (1 << 18) + 1));
  }
}

TEST_CASE("a budget that cannot be kept reports the least bytes, and a layer needs a choice") {
  const Layers layers{{{10, 0}, {4, 1}}, {{20, 0}, {7, 2}}};
  CHECK(pick_choices(layers, 11) == std::vector<size_t>{1, 1});
  CHECK(contains(error_of([&] { pick_choices(layers, 10); }), "at least 11 bytes, the budget is 10"));
  CHECK(contains(error_of([&] { pick_choices({{{1, 0}}, {}}, 10); }), "a layer has no bit widths to select from"));
}

TEST_CASE("a plan selects the bits that add least to the loss, and shows uniform bits beside them") {
  Sensitivity s;
  s.samples = 100;
  for (const char* name : {"layers.0", "layers.2"}) {
    LayerSensitivity& layer = s.layers.emplace_back();
    layer.layer = name;
    const double weight = layer.layer == "layers.0" ? 10 : 1;
    layer.effects = {effect("int8wo", 100, -0.01, 1e-4), effect("int4wo_symmetric", 50, 0.01 * weight, 1e-2),
                     effect("int2wo", 25, 0.1 * weight, 1e-1)};
  }
  const BudgetPlan plan = plan_budget(s, 130);
  REQUIRE(plan.layers.size() == 2);
  CHECK(plan.layers[0].effect.recipe == "int8wo");
  CHECK(plan.layers[1].effect.recipe == "int2wo");
  CHECK(plan.bytes == 125);
  CHECK(plan.least == 50);
  CHECK(plan.most == 200);
  CHECK(contains(plan.table, "budget: 130 bytes; the weights need 125"));
  CHECK(contains(plan.table, "over the budget"));
  CHECK(!contains(plan.table, "the highest bit widths fit"));
  CHECK(contains(plan_budget(s, 1000).table, "the highest bit widths fit"));
  CHECK(contains(error_of([&] { plan_budget(s, 49); }), "at least 50 bytes"));
  CHECK(contains(error_of([&] { plan_budget({}, 49); }), "no layer"));
}

TEST_CASE("a quant.budget becomes rules before the run starts, and the run keeps it") {
  const KeepModes keep;
  TempDir temp;
  const std::string from = create_run_folder(small_config({}, kFloat), temp.file("float"));
  run_all(small_config({}, kFloat), from);
  const auto with_budget = [&](const std::string& budget) {
    return small_config({"model.init_from=" + from, "quant.budget=" + budget}, kFloat);
  };
  BudgetPlan plan;
  const RunConfig resolved = resolve_budget(with_budget("4 KB"), &plan);
  CHECK(!resolved.quant.budget);
  CHECK(with_budget("4 KB").quant.budget->bits == BudgetConfig{}.bits);
  CHECK(resolved.quant.prepare.mark.line == with_budget("4 KB").quant.budget->mark.line);
  CHECK(resolved.quant.prepare.rules[0].mark.argument == with_budget("4 KB").quant.budget->mark.argument);
  REQUIRE(resolved.quant.prepare.rules.size() == 2);
  CHECK(resolved.quant.prepare.rules[0].layers == "layers.0");
  CHECK(resolved.quant.prepare.rules[1].layers == "layers.2");
  CHECK(plan.bytes <= 4000);
  CHECK(parse_config(to_yaml(resolved), "again") == resolved);

  CHECK(contains(error_of([&] { Trainer(with_budget("4 KB")); }), "resolve_budget"));
  Trainer trainer(resolved);
  trainer.start();
  int64_t bytes = 0;
  for (const LayerSummary& row : summarize(trainer.learner().model())) bytes += row.bytes;
  CHECK(bytes == plan.bytes);

  CHECK_THROWS_AS(resolve_budget(with_budget("100")), ConfigError);
  CHECK(contains(error_of([&] { resolve_budget(with_budget("100")); }), "the weights need at least"));
  CHECK(contains(error_of([&] { resolve_budget(with_budget("{bytes: 4 KB, bits: [7]}")); }),
                 "no weight recipe has 7 bits"));
  CHECK(contains(error_of([&] {
                   resolve_budget(small_config({"model.init_from=/no/such/run", "quant.budget=4 KB"}, kFloat));
                 }),
                 "/no/such/run"));
  CHECK(resolve_budget(small_config({}, kFloat)) == small_config({}, kFloat));
}

TEST_CASE("a size of a budget is read as its key is") {
  CHECK(budget_bytes("60 KB") == 60000);
  CHECK(budget_bytes("64KiB") == 65536);
  CHECK(budget_bytes("1234") == 1234);
  CHECK(contains(error_of([&] { budget_bytes("60 K"); }),
                 "got '60 K', expected a whole number of bytes, or a number and a unit"));
  CHECK(contains(error_of([&] { budget_bytes("0"); }), "0 is out of range [1, 1000000000000]"));
}

TEST_CASE("the choices of a budget are measured with methods as sensitivities are", "[bits]") {
  const KeepModes keep;
  TempDir temp;
  const std::string from = create_run_folder(small_config({}, kFloat), temp.file("float"));
  run_all(small_config({}, kFloat), from);
  const auto with_methods = [&](const std::string& methods) {
    return small_config({"model.init_from=" + from,
                         "quant.budget={bytes: 4 KB, bits: [4, 2, 1], samples: 100, methods: " + methods + "}"},
                        kFloat);
  };
  const RunConfig config = with_methods("[gptq, refit]");
  CHECK(config.quant.budget->methods == std::vector<std::string>{"gptq", "refit"});
  CHECK(parse_config(to_yaml(config), "again") == config);
  BudgetPlan plan;
  const RunConfig resolved = resolve_budget(config, &plan);

  const auto data = open_dataset(config, config.data.train);
  const auto learner = load_floats(from + "/last.safetensors", float_config(config), *data);
  const std::vector<SampleBatch> samples = first_samples(*data, 100, config.train.eval.batch, 5);
  learner->calibrate(tensors_of(samples));
  const std::vector<WeightChoice> choices = budget_choices(config.quant.budget->bits);
  const Sensitivity fitted = measure_sensitivity(*learner, samples, choices, samples, {{"gptq", "refit"}}),
                    plain = measure_sensitivity(*learner, samples, choices, samples);
  REQUIRE(plan.layers.size() == 2);
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerEffect& got = plan.layers[i].effect;
    for (size_t c = 0; c < choices.size(); ++c) {
      const LayerEffect &as = fitted.layers[i].effects[c], &rounded = plain.layers[i].effects[c];
      CHECK(as.noise != rounded.noise);  // codes that are fitted are further from the weights
      if (as.recipe != got.recipe || as.group != got.group) continue;
      CHECK(got.loss_change == as.loss_change);
      CHECK(got.accuracy_change == as.accuracy_change);
      CHECK(got.noise == as.noise);
      CHECK(got.bytes == as.bytes);
    }
  }
  CHECK(plan.methods == std::vector<std::string>{"gptq", "refit"});
  CHECK(contains(plan.table, "samples when only one layer uses the recipe, fitted by gptq, refit, and their sums"));
  CHECK(!contains(plan_budget(plain, 4000).table, "fitted by"));
  const Json j = Json::parse(budget_json(plan));
  CHECK(j.at("methods").dump() == Json::array({"gptq", "refit"}).dump());
  CHECK(j.at("samples") == 100);
  CHECK(j.at("layers")[1].at("layer") == "layers.2");
  CHECK(j.at("layers")[1].at("loss_change") == plan.layers[1].effect.loss_change);
  CHECK(Json::parse(sensitivity_json(fitted)).at("methods").dump() == j.at("methods").dump());
  // The run keeps the choice alone, and computes its codes from masters.
  CHECK(resolved.quant.prepare.rules.size() == 2);
  CHECK(resolved.quant.prepare.rules[0].quant.recipe == plan.layers[0].effect.recipe);
}

TEST_CASE("methods that a budget cannot measure are errors at the budget, before anything is read") {
  const auto refused = [](const std::string& methods) {
    const RunConfig config =
        small_config({"model.init_from=/no/such/run", "quant.budget={bytes: 4 KB, methods: " + methods + "}"}, kFloat);
    CHECK_THROWS_AS(resolve_budget(config), ConfigError);
    return error_of([&] { resolve_budget(config); });
  };
  for (const char* method : {"equalize", "smooth", "norms"})
    CHECK(contains(refused(concat("[gptq, ", method, ']')),
                   concat("method ", method, " changes the whole model, and here one layer is quantized at a time")));
  CHECK(contains(refused("[gtpq]"), "Did you mean 'gptq'?"));
}
