// Multiple-choice knapsack: minimizes cost within a budget of bytes.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/tools/budget.h"

namespace bitgrad {
namespace {

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
