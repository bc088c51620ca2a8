// Moves quantizers before the max pools that feed them.
#include <utility>

#include "export/c_writer.h"

namespace bitgrad::c_target {
namespace {

using inference::Node;
using inference::Quantize;

// Whether quantizing first gives the same codes: the rule is monotone and the same for all that is pooled or moved.
bool commutes(const Node& first, const Quantize& q) {
  if (!quantize_refusal(q).empty() || first.form.dtype != dtypes::fp32) return false;
  for (const float s : q.scale)
    if (!(s > 0)) return false;
  if (std::holds_alternative<inference::MaxPool>(first.operation)) return true;
  return std::holds_alternative<inference::Reshape>(first.operation) && q.scale.size() <= 1 && q.shift.size() <= 1 &&
         q.zero.size() <= 1;
}

}  // namespace

inference::Graph pooled_codes(const inference::Graph& graph) {
  std::vector<Node> nodes = graph.nodes();
  for (size_t last = 2; last < nodes.size(); ++last)
    for (size_t i = last; i > 1; --i) {
      Node &before = nodes[i - 1], &now = nodes[i];
      const auto* const q = std::get_if<Quantize>(&now.operation);
      if (q == nullptr || now.inputs[0] != static_cast<inference::Value>(i - 1) ||
          graph.readers(static_cast<inference::Value>(i - 1)) != 1 || !commutes(before, *q))
        break;
      std::swap(before.layer, now.layer);
      std::swap(before.operation, now.operation);
      before.params = now.params;
      const Shape sample = nodes[static_cast<size_t>(before.inputs[0])].form.sample;
      before.form = now.form;
      before.form.sample = sample;
    }
  inference::Graph out(nodes[0].form);
  for (size_t i = 1; i < nodes.size(); ++i) out.add(std::move(nodes[i]));
  return out;
}

}  // namespace bitgrad::c_target
