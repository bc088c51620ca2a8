// Allocates bits to layers, from sensitivities and a budget in bytes.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/budget.h"
#include "config/schema.h"
#include "tools/effects.h"

namespace bitgrad {
namespace {

// Small against any change of the loss that matters (1 % of noise counts as 1e-5), but it ranks choices whose change is
// too small to measure on few samples, or seems to reduce the loss.
constexpr double kNoiseWeight = 1e-3;

int64_t sum_of_bytes(const Sensitivity& s, bool max) {
  int64_t sum = 0;
  for (const LayerSensitivity& layer : s.layers) {
    const auto [least, greatest] =
        std::minmax_element(layer.effects.begin(), layer.effects.end(),
                            [](const LayerEffect& a, const LayerEffect& b) { return a.bytes < b.bytes; });
    sum += (max ? greatest : least)->bytes;
  }
  return sum;
}

// The sum over all layers with the same choice.
LayerEffect uniform(const Sensitivity& s, size_t choice) {
  LayerEffect sum;
  for (const LayerSensitivity& layer : s.layers) {
    const LayerEffect& e = layer.effects[choice];
    sum.recipe = e.group ? e.recipe + " group row" : e.recipe;
    sum.bits = e.bits;
    sum.bytes += e.bytes;
    sum.loss_change += e.loss_change;
    sum.accuracy_change += e.accuracy_change;
  }
  return sum;
}

std::vector<std::string> sum_line(const std::string& name, const LayerEffect& sum, int64_t budget) {
  std::vector<std::string> line = effect_cells(name, sum);
  line[4] = std::string("-");
  if (sum.bytes > budget) line.push_back("over the budget");
  return line;
}

std::string table_of(const BudgetPlan& plan, const Sensitivity& s) {
  std::vector<std::vector<std::string>> lines{
      {"layer", "recipe", "bits", "bytes", "SQNR dB", "loss change", "accuracy change"}};
  LayerEffect sum;
  for (const auto& row : plan.layers) {
    lines.push_back(effect_cells(row.layer, row.effect));
    sum.bytes += row.effect.bytes;
    sum.loss_change += row.effect.loss_change;
    sum.accuracy_change += row.effect.accuracy_change;
  }
  lines.push_back(sum_line("sum", sum, plan.budget));
  lines.back()[2].clear();
  for (size_t c = 0; c < s.layers.front().effects.size(); ++c)
    lines.push_back(sum_line("all layers", uniform(s, c), plan.budget));
  return concat("budget: ", plan.budget, " bytes; the weights need ", plan.bytes, ", with these bit widths at least ",
                plan.least, " and at most ", plan.most,
                plan.bytes == plan.most ? ": the highest bit widths fit, a larger budget changes nothing" : "",
                ".\nChanges of the loss and accuracy of ", s.samples, " samples when only one layer uses the recipe",
                detail::fitted_by(s.methods), ", and their sums:\n", text_table(lines));
}

BudgetPlan plan_for(const RunConfig& config) {
  const BudgetConfig& budget = *config.quant.budget;
  const PtqSpec methods{budget.methods};
  check_layer_methods(methods);
  const std::vector<WeightChoice> choices = budget_choices(budget.bits);
  apply_run_settings(config);
  const DeviceGuard guard(device_of(config));
  const auto data = open_dataset(config, config.data.train);
  require(!is_weight_file(config.init_from), "quant.budget", config.init_from,
          " was not written by bitgrad: make a model file of it first, with bitgrad import --config");
  const std::string file = checkpoint_of(config.init_from);
  const auto samples =
      first_samples(*data, budget.samples, config.train.eval.batch, static_cast<uint64_t>(config.run.seed));
  RunConfig without = config;  // the file has no adapters yet
  without.adapters.reset();
  const auto learner = load_floats(file, without, *data);
  learner->calibrate(tensors_of(samples));
  const int64_t of_norms = budget.batch_norm.value_or(budget.samples);
  const auto norm_samples =
      of_norms == 0 ? std::vector<SampleBatch>{}
                    : first_samples(*data, of_norms, config.train.eval.batch, static_cast<uint64_t>(config.run.seed));
  return plan_budget(measure_sensitivity(*learner, samples, choices, norm_samples, methods), budget.bytes);
}

// Multiple-choice knapsack: minimizes cost within a budget of bytes.

// Thin out the states of a layer beyond this number.
constexpr size_t kMaxStates = size_t{1} << 18;

// Backpointer of a state: the choice for this layer, and the state of the layers after it.
struct Link {
  uint32_t choice = 0, rest = 0;
};
// Choices for a layer and all after it. In a list of states (a Pareto front) bytes increase and costs decrease.
struct State {
  int64_t bytes = 0;
  double cost = 0;
  Link link;
};

int64_t least_bytes(const std::vector<BudgetChoice>& choices) {
  int64_t lower = std::numeric_limits<int64_t>::max();
  for (const BudgetChoice& c : choices) lower = std::min(lower, c.bytes);
  return lower;
}

// Divides the room into kMaxStates equal parts and keeps the cheapest state of each. Every state fits together with the
// smallest choices of the layers before, so any kept state leads to a solution within the budget.
void thin_out(std::vector<State>& states, int64_t room) {
  if (states.size() <= kMaxStates) return;
  const int64_t part = room / static_cast<int64_t>(kMaxStates) + 1;
  size_t kept = 0;
  for (size_t i = 0; i < states.size(); ++i)
    if (i + 1 == states.size() || states[i + 1].bytes / part != states[i].bytes / part) states[kept++] = states[i];
  states.resize(kept);
}

std::vector<State> extend(const std::vector<BudgetChoice>& choices, const std::vector<State>& after, int64_t room) {
  std::vector<State> all;
  for (size_t rest = 0; rest < after.size(); ++rest)
    for (size_t c = 0; c < choices.size(); ++c) {
      const int64_t bytes = choices[c].bytes + after[rest].bytes;
      if (bytes <= room)
        all.push_back(
            {bytes, choices[c].cost + after[rest].cost, {static_cast<uint32_t>(c), static_cast<uint32_t>(rest)}});
    }
  std::sort(all.begin(), all.end(), [](const State& a, const State& b) {
    if (a.bytes != b.bytes) return a.bytes < b.bytes;
    if (a.cost != b.cost) return a.cost < b.cost;
    return a.link.choice < b.link.choice;
  });
  std::vector<State> kept;
  for (const State& s : all)
    if (kept.empty() || s.cost < kept.back().cost) kept.push_back(s);
  thin_out(kept, room);
  return kept;
}

}  // namespace

std::vector<WeightChoice> budget_choices(std::span<const int64_t> bits) {
  std::vector<WeightChoice> choices;
  for (const int64_t b : bits) {
    const std::string recipe = uniform_recipe(b);
    choices.push_back({recipe});
    if (find_recipe(recipe).weight->granularity.kind == Granularity::kGroup) choices.push_back({recipe, /*rows=*/true});
  }
  return choices;
}

int64_t budget_bytes(const std::string& text) {
  const config::KeySpec* spec = config::find_key("budget", "bytes");
  config::Node node;
  node.kind = config::Node::Kind::kScalar;
  node.text = text;
  config::Value value;
  const std::string wrong = config::use_of(spec->type).read(*spec, node, value);
  require(wrong.empty(), "budget", wrong);
  return std::get<int64_t>(value);
}

double budget_cost(const LayerEffect& effect) {
  return std::max(effect.loss_change, 0.0) + kNoiseWeight * effect.noise;
}

BudgetPlan plan_budget(const Sensitivity& sensitivity, int64_t budget) {
  std::vector<std::vector<BudgetChoice>> layers;
  for (const LayerSensitivity& layer : sensitivity.layers) {
    auto& choices = layers.emplace_back();
    for (const LayerEffect& e : layer.effects) choices.push_back({e.bytes, budget_cost(e)});
  }
  require(!layers.empty(), "budget", "the model has no layer that can be quantized");
  const std::vector<size_t> picked = pick_choices(layers, budget);
  BudgetPlan plan;
  plan.budget = budget;
  plan.samples = sensitivity.samples;
  plan.methods = sensitivity.methods;
  plan.least = sum_of_bytes(sensitivity, /*max=*/false);
  plan.most = sum_of_bytes(sensitivity, /*max=*/true);
  for (size_t i = 0; i < picked.size(); ++i) {
    plan.layers.push_back({sensitivity.layers[i].layer, sensitivity.layers[i].effects[picked[i]]});
    plan.bytes += plan.layers.back().effect.bytes;
  }
  plan.table = table_of(plan, sensitivity);
  return plan;
}

std::vector<QuantRuleConfig> budget_rules(const BudgetPlan& plan) {
  std::vector<QuantRuleConfig> rules;
  for (const BudgetPlan::Layer& layer : plan.layers) {
    QuantRuleConfig& rule = rules.emplace_back();
    rule.layers = layer.layer;
    rule.quant.recipe = layer.effect.recipe;
    rule.quant.group = layer.effect.group;
  }
  return rules;
}

std::string budget_json(const BudgetPlan& plan) {
  Json layers = Json::array();
  for (const BudgetPlan::Layer& layer : plan.layers) {
    Json row{{"layer", layer.layer}};
    row.update(detail::effect_json(layer.effect));
    layers.push_back(row);
  }
  return Json{{"budget", plan.budget},   {"bytes", plan.bytes},     {"least", plan.least}, {"most", plan.most},
              {"samples", plan.samples}, {"methods", plan.methods}, {"layers", layers}}
      .dump(2);
}

RunConfig resolve_budget(RunConfig config, BudgetPlan* plan) {
  if (!config.quant.budget) return config;
  BudgetPlan chosen;
  try {
    chosen = plan_for(config);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage) throw;
    throw config_error_at(config, config.quant.budget->mark, e.what());
  }
  config.quant.prepare.mark = config.quant.budget->mark;  // errors in the rules point to quant.budget
  for (QuantRuleConfig& rule : config.quant.prepare.rules = budget_rules(chosen)) rule.mark = config.quant.budget->mark;
  config.quant.budget.reset();
  TextReader lines(chosen.table);
  for (std::string line; std::getline(lines, line);) log(LogLevel::kInfo, line);
  if (plan != nullptr) *plan = std::move(chosen);
  return config;
}

std::vector<size_t> pick_choices(const std::vector<std::vector<BudgetChoice>>& layers, int64_t budget) {
  int64_t min = 0;
  for (const auto& choices : layers) {
    require(!choices.empty(), "budget", "a layer has no bit widths to select from");
    min += least_bytes(choices);
  }
  require(min <= budget, "budget", "the weights need at least ", min, " bytes, the budget is ", budget,
          ". Raise the budget, or allow lower bit widths");
  // From the last layer to the first, so that the first layer that differs decides ties.
  std::vector<std::vector<Link>> links(layers.size());
  std::vector<State> states(1);
  int64_t before = min;  // minimum bytes of the layers before
  for (size_t i = layers.size(); i-- > 0;) {
    before -= least_bytes(layers[i]);
    states = extend(layers[i], states, budget - before);
    for (const State& s : states) links[i].push_back(s.link);
  }
  std::vector<size_t> picked;
  size_t at = states.size() - 1;
  for (const std::vector<Link>& of_layer : links) {
    picked.push_back(of_layer[at].choice);
    at = of_layer[at].rest;
  }
  return picked;
}

}  // namespace bitgrad
