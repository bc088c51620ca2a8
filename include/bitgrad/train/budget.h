// Bits for each layer under a budget of bytes: `quant: {budget: 60 KB}`.
//
// The cost of a choice is what it does alone to a trained model (train/sensitivity.h); costs of layers are added up.
// The sum is made least under the budget: a multiple-choice knapsack, solved exactly (Kellerer, Pferschy, Pisinger
// 2004, chapter 11; states that cost and weigh more than another one are dropped, as Nemhauser and Ullmann 1969).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/train/config.h"
#include "bitgrad/train/sensitivity.h"

namespace bitgrad {

struct BudgetChoice {
  int64_t bytes = 0;
  double cost = 0;
};
// The index of one choice for each layer: the least sum of costs with at most `budget` bytes; of equal sums the one of
// fewer bytes, then the earlier choice in the first layer that differs. Exact while no more than 2^18 sums of bytes are
// worth keeping at a layer; beyond, sums that differ by less than budget / 2^18 count as one there, and the result
// costs at most what is best for a budget that is smaller by that much for each layer. Throws Error when the least
// bytes do not fit, or a layer has no choice.
std::vector<size_t> pick_choices(const std::vector<std::vector<BudgetChoice>>& layers, int64_t budget);

// What a budget came to.
struct BudgetPlan {
  struct Layer {
    std::string layer = {};
    LayerEffect effect = {};  // the choice
  };
  std::vector<Layer> layers = {};
  int64_t budget = 0, bytes = 0, least = 0, most = 0;  // of the choices; least and most: with the fewest and most bits
  // A choice for each layer, a line with its bytes and what it costs, and what uniform bits would come to.
  std::string table = {};
};
// The cost of an effect: max(change of the loss, 0) + kNoiseWeight * noise of the weight relative to its signal. The
// second term orders choices whose change of the loss is below what few samples can show.
double budget_cost(const LayerEffect& effect);
BudgetPlan plan_budget(const Sensitivity& sensitivity, int64_t budget);

// A configuration with quant.budget becomes one whose quant.rules name each layer's recipe: the run of model.init_from
// is opened, sensitivities are measured on the first budget.samples of data.train, and the budget is planned. Others
// pass as they are. `plan`: what was chosen. Applies device.threads and run.bits to the process.
RunConfig resolve_budget(RunConfig config, BudgetPlan* plan = nullptr);

}  // namespace bitgrad
