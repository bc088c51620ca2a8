// The multiple-choice knapsack of bits and bytes.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/train/budget.h"

namespace bitgrad {
namespace {

// More states of one layer than this are thinned out.
constexpr size_t kMaxStates = size_t{1} << 18;

// How a state came about: a choice for the layer, and the state of the layers after it.
struct Link {
  uint32_t choice = 0, rest = 0;
};
// Choices for a layer and all after it. In a list of states bytes ascend and costs descend: no state is worse in both
// than another one.
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

// Of the states in each of kMaxStates equal parts of the room the cheapest is kept. Each one alone fits beside the
// least of the layers before, so that whatever is kept leads to a choice within the budget.
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
  // From the last layer to the first, so that ties are decided by the first that differs.
  std::vector<std::vector<Link>> links(layers.size());
  std::vector<State> states(1);
  int64_t before = min;  // the least that the layers before need
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
