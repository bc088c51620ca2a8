// Bit allocation under a memory budget: `quant: {budget: 60 KB}`.
//
// The cost of a choice is its effect on a trained model when applied alone (tools/sensitivity.h); costs of layers add
// up. Minimizing the sum under the budget is a multiple-choice knapsack, solved exactly (Kellerer, Pferschy, Pisinger
// 2004, chapter 11; dominated states are dropped as in Nemhauser and Ullmann 1969).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "bitgrad/tools/sensitivity.h"

namespace bitgrad {

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
  // One line per layer with its choice, bytes and cost, followed by what uniform bits would give. Also logged (kInfo).
  std::string table = {};
};
// Cost of an effect: max(loss change, 0) + kNoiseWeight * relative noise of the weight. The second term orders choices
// whose loss change is below what few samples can resolve.
double budget_cost(const LayerEffect& effect);
BudgetPlan plan_budget(const Sensitivity& sensitivity, int64_t budget);

// Replaces quant.budget by quant.rules with a recipe per layer: opens the run of model.init_from, measures
// sensitivities on the first budget.samples of data.train, and plans the budget. Configurations without a budget are
// returned unchanged. `plan` receives the choices. Applies device.threads and run.bits to the process.
RunConfig resolve_budget(RunConfig config, BudgetPlan* plan = nullptr);

}  // namespace bitgrad
