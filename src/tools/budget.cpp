// Allocates bits to layers, from sensitivities and a budget in bytes.
#include "bitgrad/tools/budget.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/text_stream.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/run/trainer.h"

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
  std::vector<std::string> line{name};
  for (std::string& cell : effect_cells(sum)) line.push_back(std::move(cell));
  line[4] = std::string("-");
  if (sum.bytes > budget) line.push_back("over the budget");
  return line;
}

std::string table_of(const BudgetPlan& plan, const Sensitivity& s) {
  std::vector<std::vector<std::string>> lines{
      {"layer", "recipe", "bits", "bytes", "SQNR dB", "loss change", "accuracy change"}};
  LayerEffect sum;
  for (const auto& row : plan.layers) {
    std::vector<std::string>& line = lines.emplace_back(1, row.layer);
    for (std::string& cell : effect_cells(row.effect)) line.push_back(std::move(cell));
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
                ".\nChanges of the loss and accuracy of ", s.samples,
                " samples when only one layer uses the recipe, and their sums:\n", text_table(lines));
}

BudgetPlan plan_for(const RunConfig& config) {
  const BudgetConfig& budget = *config.quant.budget;
  std::vector<WeightChoice> choices;
  for (const int64_t bits : budget.bits) {
    const std::string recipe = uniform_recipe(bits);
    choices.push_back({recipe});
    if (find_recipe(recipe).weight->granularity.kind == Granularity::kGroup) choices.push_back({recipe, /*rows=*/true});
  }
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
  return plan_budget(measure_sensitivity(*learner, samples, choices, norm_samples), budget.bytes);
}

}  // namespace

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
  plan.least = sum_of_bytes(sensitivity, /*max=*/false);
  plan.most = sum_of_bytes(sensitivity, /*max=*/true);
  for (size_t i = 0; i < picked.size(); ++i) {
    plan.layers.push_back({sensitivity.layers[i].layer, sensitivity.layers[i].effects[picked[i]]});
    plan.bytes += plan.layers.back().effect.bytes;
  }
  plan.table = table_of(plan, sensitivity);
  return plan;
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
  for (const BudgetPlan::Layer& layer : chosen.layers) {
    QuantRuleConfig rule;
    rule.mark = config.quant.budget->mark;
    rule.layers = layer.layer;
    rule.quant.recipe = layer.effect.recipe;
    rule.quant.group = layer.effect.group;
    config.quant.prepare.rules.push_back(rule);
  }
  config.quant.budget.reset();
  TextReader lines(chosen.table);
  for (std::string line; std::getline(lines, line);) log(LogLevel::kInfo, line);
  if (plan != nullptr) *plan = std::move(chosen);
  return config;
}

}  // namespace bitgrad
