// Bit allocation under a memory budget: `quant: {budget: 60 KB}`, `bitgrad quantize --budget "60 KB"`.
//
// The cost of a choice is its effect on a trained model when applied alone (measure_sensitivity); costs of layers add
// up. Minimizing the sum under the budget is a multiple-choice knapsack, solved exactly (Kellerer, Pferschy, Pisinger
// 2004, chapter 11; dominated states are dropped as in Nemhauser and Ullmann 1969).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "bitgrad/tools/ptq.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// Quantization sensitivity: the effect on a trained model of holding a single layer in few bits.

// The weight-only recipe for a number of bits: int8wo, int6wo, int5wo, int4wo_symmetric, int3wo, int2wo, and binary_wo
// for 1 (src/tools/uniform_recipes.inc). Throws Error for other numbers; the message lists them.
std::string uniform_recipe(int64_t bits);

// A candidate precision for a weight: the weight part of a recipe.
struct WeightChoice {
  std::string recipe = {};
  bool rows = false;  // one group per row: one scale per output
};

// Effect of quantizing one layer with one choice, all other layers unchanged.
struct LayerEffect {
  std::string recipe = {};
  std::optional<int64_t> group = {};  // replaces the recipe's group size
  int64_t bits = 0;                   // per code
  int64_t bytes = 0;                  // of codes and scales, as in a file
  double noise = 0;                   // sum (w - q)^2 / sum w^2 over the weight; 0 for an all-zero weight
  double loss_change = 0;             // of the mean loss over the samples
  double accuracy_change = 0;         // in percentage points
  // 10 log10(1 / noise); infinity if noise is 0.
  double sqnr_db() const;
};
struct LayerSensitivity {
  std::string layer = {}, kind = {};
  Shape shape = {};
  int64_t bytes = 0;                      // at its current precision
  std::vector<LayerEffect> effects = {};  // in the order of the choices
};
struct Sensitivity {
  int64_t samples = 0;
  double loss = 0, accuracy = 0;          // of the unmodified model, accuracy in percent
  std::vector<std::string> methods = {};  // fitted each choice; empty: codes are those of the recipe
  std::vector<LayerSensitivity> layers = {};
};

// Throws Error for unknown and repeated methods, numbers out of range, and methods without a step for each layer: they
// change several layers, so that their effect on one of them cannot be measured.
void check_layer_methods(const PtqSpec& methods);

// Applies each choice to each quantizable layer in turn and evaluates the samples in evaluation mode; the layer's input
// quantization is unchanged. The statistics of norms are renewed on `norm_samples` (renew_norms), those of the
// unmodified model too; none: they stay. Afterwards the model has its original values, codes and scales, bit for bit,
// but layouts are planned for evaluation and a weight's learned parts are new objects, so the learner must be planned
// again before further training. `methods`: fit codes, scales and bias of each choice to the samples, as
// quantize_with_methods does while only this layer is quantized; layers that no method fits keep the codes of the
// recipe. Throws Error for a converted model, a recipe that does not quantize weights, `rows` with a recipe that has no
// groups, and what check_layer_methods throws.
Sensitivity measure_sensitivity(Learner& learner, std::span<const SampleBatch> samples,
                                std::span<const WeightChoice> choices, std::span<const SampleBatch> norm_samples,
                                const PtqSpec& methods = {});
// Table cells: layer, recipe (with group), bits, bytes, SQNR in dB, changes of loss and accuracy.
std::vector<std::string> effect_cells(const std::string& layer, const LayerEffect& effect);
void print_sensitivity(std::ostream& out, const Sensitivity& sensitivity);
// {"samples", "loss", "accuracy", "methods", "layers": [{"layer", "kind", "shape", "bytes", "recipes": [{"recipe",
// "group", "bits", "bytes", "sqnr_db", "loss_change", "accuracy_change"}]}]}
std::string sensitivity_json(const Sensitivity& sensitivity);

// The choices of a budget for these bits: their recipes, and of recipes with groups also one group per row.
std::vector<WeightChoice> budget_choices(std::span<const int64_t> bits);
// A size such as "60 KB", as the key quant.budget.bytes reads it. Throws Error for other texts.
int64_t budget_bytes(const std::string& text);

struct BudgetChoice {
  int64_t bytes = 0;
  double cost = 0;
};
// Returns the index of one choice per layer that minimizes the sum of costs with at most `budget` bytes. Ties: fewer
// bytes, then the earlier choice in the first layer that differs. Exact while no more than 2^18 byte totals are
// undominated at any layer; beyond that, totals that differ by less than budget / 2^18 are merged, and the result costs
// no more than the optimum for a budget that is smaller by that amount per layer. Throws Error if even the smallest
// choices do not fit, or a layer has no choice.
std::vector<size_t> pick_choices(const std::vector<std::vector<BudgetChoice>>& layers, int64_t budget);

// The result of planning a budget.
struct BudgetPlan {
  struct Layer {
    std::string layer = {};
    LayerEffect effect = {};  // of the choice
  };
  std::vector<Layer> layers = {};
  int64_t budget = 0, bytes = 0, least = 0, most = 0;  // bytes of the choices, and with the fewest and most bits
  int64_t samples = 0;                                 // by which choices were measured
  std::vector<std::string> methods = {};               // that fitted them
  // One line per layer with its choice, bytes and cost, followed by what uniform bits would give. Also logged (kInfo).
  std::string table = {};
};
// Cost of an effect: max(loss change, 0) + kNoiseWeight * relative noise of the weight. The second term orders choices
// whose loss change is below what few samples can resolve.
double budget_cost(const LayerEffect& effect);
BudgetPlan plan_budget(const Sensitivity& sensitivity, int64_t budget);
// quant.rules with the choice of each layer.
std::vector<QuantRuleConfig> budget_rules(const BudgetPlan& plan);
// {"budget", "bytes", "least", "most", "samples", "methods", "layers": [{"layer", and of its choice what
// sensitivity_json says of a recipe}]}
std::string budget_json(const BudgetPlan& plan);

// Replaces quant.budget by quant.rules with a recipe per layer: opens the run of model.init_from, measures
// sensitivities on the first budget.samples of data.train, with budget.methods, and plans the budget. The run then
// computes codes from masters: of the methods only the choice remains. Configurations without a budget are
// returned unchanged. `plan` receives the choices. Applies device.threads and run.bits to the process.
RunConfig resolve_budget(RunConfig config, BudgetPlan* plan = nullptr);

}  // namespace bitgrad
