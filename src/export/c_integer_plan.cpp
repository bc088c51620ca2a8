// What a C file of integers calls in which order, and where its values are.
#include <algorithm>
#include <numeric>

#include "bitgrad/base/error.h"
#include "export/c_integer.h"

namespace bitgrad::c_integer {
namespace {

using inference::Node;
using inference::Product;

constexpr int64_t kAlign = 4;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool grouped(const Product& op) { return op.conv && op.conv->groups > 1; }

Value index_of(const Graph& graph, const Node& node) { return static_cast<Value>(&node - graph.nodes().data()); }

// The product whose codes `value` holds, if a sum may be computed with them: not grouped, and read by the sum alone.
Value fusable(const Graph& graph, Value value) {
  if (!std::holds_alternative<inference::Requantize>(graph[value].operation) || graph.readers(value) != 1) return -1;
  const Value from = graph[value].inputs[0];
  const auto* const product = std::get_if<Product>(&graph[from].operation);
  return product != nullptr && !grouped(*product) ? from : -1;
}

std::vector<Step> steps_of(const Graph& graph) {
  const Value last = graph.output();
  std::vector<Value> sum_of(graph.nodes().size(), -1), other_of(graph.nodes().size(), -1);
  std::vector<bool> done(graph.nodes().size(), false);
  for (Value v = 2; v < last; ++v) {
    if (!std::holds_alternative<inference::IntegerAdd>(graph[v].operation)) continue;
    // The later product: the other operand is there when it runs.
    const Value a = graph[v].inputs[0], b = graph[v].inputs[1], late = std::max(a, b), other = std::min(a, b);
    const Value product = a == b ? -1 : fusable(graph, late);
    if (product < 0 || other >= product) continue;
    sum_of[static_cast<size_t>(product)] = v;
    other_of[static_cast<size_t>(product)] = other;
    done[static_cast<size_t>(v)] = true;
  }
  std::vector<Step> steps;
  for (Value v = 2; v < last; ++v) {
    const Node& node = graph[v];
    const auto at = static_cast<size_t>(v);
    Step step{.node = v, .inputs = node.inputs, .result = v};
    if (std::holds_alternative<Product>(node.operation)) {
      step.stage = index_of(graph, *graph.only_reader(v));
      done[static_cast<size_t>(step.stage)] = true;
      step.sum = sum_of[at];
      step.result = step.sum >= 0 ? step.sum : step.stage;
      if (step.sum >= 0) step.inputs.push_back(other_of[at]);
    } else if (done[at]) {
      continue;
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

// Puts each step whose result is among `rings` before the one that reads it.
void take_turns(const Graph& graph, const std::vector<Value>& rings, std::vector<Step>& steps) {
  for (const Value ring : rings) {
    const auto makes = std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return s.result == ring; });
    const auto reads =
        std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return can_stream(graph, *makes, s); });
    makes->kept = reads->reads = row_window(graph, *reads)->extent;
    std::rotate(makes, makes + 1, reads);
  }
}

int64_t ring_bytes(const Graph& graph, const Step& step) {
  const Shape& image = graph[step.result].form.sample;
  return step.kept == 0 ? image.numel() : step.kept * image[1] * image[2];
}

// Whether each code of a pool's result may take the place of the codes behind those that later windows read.
bool pools_in_place(const Graph& graph, const Step& step) {
  const Node& node = graph[step.node];
  const Shape& in = graph[step.inputs[0]].form.sample;
  const auto* const most = std::get_if<inference::MaxPool>(&node.operation);
  const auto* const mean = std::get_if<inference::IntegerAvgPool>(&node.operation);
  if (mean != nullptr && mean->whole_image) return true;
  if (in.rank() != 3) return false;
  const PoolOptions& o = most != nullptr ? most->options : mean->options;
  const int64_t rows = node.form.sample[0], columns = node.form.sample[1];
  int64_t first = in[0] * in[1];  // that the windows behind the present one read
  for (int64_t p = rows * columns - 1; p >= 0; --p) {
    if (first <= p) return false;
    const int64_t y = std::max<int64_t>(p / columns * o.stride[0] - o.padding[0], 0);
    const int64_t x = std::max<int64_t>(p % columns * o.stride[1] - o.padding[1], 0);
    first = std::min(first, y * in[1] + x);
  }
  return true;
}

// Values that share bytes, as a forest: the parent of a value, or itself.
class Groups {
 public:
  explicit Groups(size_t n) : parent_(n), bytes_(n), first_(n), last_(n) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t of(Value v) const {
    auto g = static_cast<size_t>(v);
    while (parent_[g] != g) g = parent_[g];
    return g;
  }
  void set(Value v, int64_t bytes, int64_t first, int64_t last) {
    const auto g = static_cast<size_t>(v);
    bytes_[g] = bytes;
    first_[g] = first;
    last_[g] = last;
  }
  void resize(Value v, int64_t bytes) { bytes_[of(v)] = bytes; }
  void merge(Value from, Value to) {
    const size_t a = of(from), b = of(to);
    if (a == b) return;
    parent_[a] = b;
    bytes_[b] = std::max(bytes_[a], bytes_[b]);
    first_[b] = std::min(first_[a], first_[b]);
    last_[b] = std::max(last_[a], last_[b]);
  }
  int64_t bytes(size_t g) const { return bytes_[g]; }
  int64_t first(size_t g) const { return first_[g]; }
  int64_t last(size_t g) const { return last_[g]; }

 private:
  std::vector<size_t> parent_;
  std::vector<int64_t> bytes_, first_, last_;
};

// Gives the result the place of an operand, where that is possible: of the input only if it is the file's own. `makes`:
// the step that runs in turns with this one; or nullptr.
void share(const Graph& graph, Step& step, Step* makes, int64_t now, bool own, Groups& groups) {
  const auto& op = graph[step.node].operation;
  const auto dies = [&](Value v) {
    return (own || groups.of(v) != groups.of(1)) && groups.last(groups.of(v)) == now &&
           groups.bytes(groups.of(v)) >= groups.bytes(groups.of(step.result));
  };
  const auto take = [&](Value v) {
    if (!dies(v)) return false;
    groups.merge(step.result, v);
    return true;
  };
  if (makes != nullptr) {
    const Value from = makes->inputs[0];
    if (step.sum >= 0 && groups.of(step.inputs[1]) != groups.of(from) && take(step.inputs[1])) return;
    const std::optional<int64_t> kept = kept_in_place(graph, *makes, step);
    // Rows more than the next window reads are kept too, if they are fewer than the result has.
    const int64_t row = ring_bytes(graph, *makes) / makes->kept;
    if (!kept || (*kept - makes->kept) * row >= groups.bytes(groups.of(step.result)) || !take(from)) return;
    makes->kept = step.reads = *kept;
    groups.resize(makes->result, ring_bytes(graph, *makes));
  } else if (step.sum >= 0) {
    if (groups.of(step.inputs[0]) != groups.of(step.inputs[1])) take(step.inputs[1]);
  } else if (std::holds_alternative<inference::Reshape>(op)) {
    groups.merge(step.result, step.inputs[0]);
  } else if (std::holds_alternative<inference::IntegerAdd>(op) ||
             std::holds_alternative<inference::IntegerMultiply>(op)) {
    if (!take(step.inputs[0])) take(step.inputs[1]);
  } else if (std::holds_alternative<inference::Table>(op) || std::holds_alternative<inference::Requantize>(op)) {
    take(step.inputs[0]);
  } else if (std::holds_alternative<inference::MaxPool>(op) || std::holds_alternative<inference::IntegerAvgPool>(op)) {
    if (pools_in_place(graph, step)) take(step.inputs[0]);
  }
}

// Offsets of the groups, placed one after the other at the lowest place that is free while they live. Returns the end.
int64_t place(const std::vector<size_t>& order, const Groups& groups, std::vector<int64_t>& offsets) {
  int64_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t g = order[i];
    int64_t at = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t k = 0; k < i; ++k) {
        const size_t h = order[k];
        const bool together = groups.last(h) >= groups.first(g) && groups.first(h) <= groups.last(g);
        if (!together || offsets[h] >= at + groups.bytes(g) || at >= offsets[h] + groups.bytes(h)) continue;
        at = aligned(offsets[h] + groups.bytes(h));
        moved = true;
      }
    }
    offsets[g] = at;
    end = std::max(end, aligned(at + groups.bytes(g)));
  }
  return end;
}

Groups groups_of(const Graph& graph, std::vector<Step>& steps, bool own) {
  const size_t n = graph.nodes().size();
  std::vector<int64_t> first(n, -1), last(n, -1);
  for (size_t i = 0; i < steps.size(); ++i) {
    first[static_cast<size_t>(steps[i].result)] = static_cast<int64_t>(i);
    for (const Value v : steps[i].inputs)
      last[static_cast<size_t>(v)] = static_cast<int64_t>(steps[i].kept > 0 ? i + 1 : i);
  }
  const Value out = graph[graph.output()].inputs[0];
  last[static_cast<size_t>(out)] = static_cast<int64_t>(steps.size());
  Groups groups(n);
  groups.set(1, graph[1].form.sample.numel(), -1, last[1]);
  for (const Step& step : steps) {
    const auto v = static_cast<size_t>(step.result);
    groups.set(step.result, ring_bytes(graph, step), first[v], std::max(last[v], first[v]));
  }
  for (size_t i = 0; i < steps.size(); ++i)
    share(graph, steps[i], steps[i].reads > 0 ? &steps[i - 1] : nullptr, static_cast<int64_t>(i), own, groups);
  return groups;
}

int64_t columns_of(const Graph& graph, const std::vector<Step>& steps) {
  int64_t most = 0;
  for (const Step& step : steps) {
    const auto* const op = std::get_if<Product>(&graph[step.node].operation);
    if (op != nullptr && !grouped(*op)) most = std::max(most, 2 * stored_columns(op->weight.cols()));
  }
  return most;
}

}  // namespace

Plan make_plan(const Graph& graph, bool own_input, bool own_output, const std::vector<Value>& rings) {
  Plan plan;
  plan.steps = steps_of(graph);
  take_turns(graph, rings, plan.steps);
  const Groups groups = groups_of(graph, plan.steps, own_input);
  const Value out = graph[graph.output()].inputs[0];
  // The result is written where the caller wants it, if nothing that shares its bytes is larger or the input.
  const bool direct =
      !own_output && groups.of(out) != groups.of(1) && groups.bytes(groups.of(out)) == graph[out].form.sample.numel();
  std::vector<size_t> by_time;
  if (own_input) by_time.push_back(groups.of(1));
  for (const Step& step : plan.steps) {
    const size_t g = groups.of(step.result);
    const bool elsewhere = (!own_input && g == groups.of(1)) || (direct && g == groups.of(out));
    if (!elsewhere && std::find(by_time.begin(), by_time.end(), g) == by_time.end()) by_time.push_back(g);
  }
  std::vector<size_t> by_size = by_time;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return groups.bytes(a) > groups.bytes(b); });
  std::vector<int64_t> offsets(graph.nodes().size(), 0), other = offsets;
  plan.arena = place(by_time, groups, offsets);
  if (const int64_t size = place(by_size, groups, other); size < plan.arena) {
    plan.arena = size;
    offsets = other;
  }
  plan.columns = columns_of(graph, plan.steps);
  plan.live.resize(plan.steps.size(), 0);
  for (const size_t g : by_time)
    for (size_t i = 0; i < plan.steps.size(); ++i)
      if (groups.first(g) <= static_cast<int64_t>(i) && static_cast<int64_t>(i) <= groups.last(g))
        plan.live[i] += aligned(groups.bytes(g));
  plan.spots.resize(graph.nodes().size());
  const auto set = [&](Value v) {  // where, and returns it for its bytes
    const size_t g = groups.of(v);
    Spot& spot = plan.spots[static_cast<size_t>(v)];
    spot.where = !own_input && g == groups.of(1) ? Spot::Where::kInput
                 : direct && g == groups.of(out) ? Spot::Where::kOutput
                                                 : Spot::Where::kArena;
    spot.offset = spot.where == Spot::Where::kArena ? offsets[g] : 0;
    return &spot;
  };
  set(1)->bytes = graph[1].form.sample.numel();
  for (const Step& step : plan.steps) set(step.result)->bytes = ring_bytes(graph, step);
  return plan;
}

}  // namespace bitgrad::c_integer
