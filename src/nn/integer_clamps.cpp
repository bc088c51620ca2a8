// Counts codes that leave the range of their scale.
#include <limits>
#include <utility>

#include "bitgrad/nn/integer_graph.h"

namespace bitgrad::inference {
namespace {

constexpr int64_t kLeast = -128, kMost = 127;

// The operation without bounds.
template <typename Op>
Op unbounded(Op op) {
  op.lo = std::numeric_limits<int32_t>::min();
  op.hi = std::numeric_limits<int32_t>::max();
  return op;
}

struct Count {
  int64_t clamped = 0, all = 0;

  template <typename Op>
  void add(const Op& bounds, int32_t code) {
    ++all;
    const bool below = bounds.lo == kLeast && bounds.zero > kLeast && code < kLeast;
    const bool above = bounds.hi == kMost && code > kMost;
    clamped += below || above ? 1 : 0;
  }
};

std::vector<int32_t> integers(const Tensor& t) {
  const std::vector<double> elements = t.without_quant().elements();
  return {elements.begin(), elements.end()};
}

// Counts one batch of a node; returns false if nothing is rounded there.
bool count_node(const Node& node, const std::vector<Tensor>& values, Count& count) {
  const auto in = [&](size_t i) { return integers(values[static_cast<size_t>(node.inputs[i])]); };
  const auto pairs = [&](const auto& op) {
    const auto wide = unbounded(op);
    const std::vector<int32_t> a = in(0), b = in(1);
    for (size_t i = 0; i < a.size(); ++i) count.add(op, code_of(wide, a[i], b[i]));
    return true;
  };
  if (const auto* const op = std::get_if<IntegerAdd>(&node.operation)) return pairs(*op);
  if (const auto* const op = std::get_if<IntegerMultiply>(&node.operation)) return pairs(*op);
  const auto* const op = std::get_if<Requantize>(&node.operation);
  if (op == nullptr) return false;
  const Requantize wide = unbounded(*op);
  const std::vector<int32_t> x = in(0);
  const int64_t features = node.form.features();
  for (size_t i = 0; i < x.size(); ++i) count.add(*op, code_of(wide, x[i], static_cast<int64_t>(i) % features));
  return true;
}

}  // namespace

std::vector<ClampedCodes> clamped_codes(const IntegerNetwork& network, std::span<const Tensor> batches) {
  const std::vector<Node>& nodes = network.graph().nodes();
  std::vector<Count> counts(nodes.size());
  std::vector<bool> rounds(nodes.size());
  for (const Tensor& x : batches) {
    std::vector<Tensor> values;
    network.run(x, &values);
    for (size_t v = 0; v < nodes.size(); ++v) rounds[v] = count_node(nodes[v], values, counts[v]);
  }
  std::vector<ClampedCodes> out;
  for (size_t v = 0; v < nodes.size(); ++v)
    if (rounds[v] && counts[v].all > 0)
      out.push_back({nodes[v].layer, static_cast<double>(counts[v].clamped) / static_cast<double>(counts[v].all)});
  return out;
}

}  // namespace bitgrad::inference
