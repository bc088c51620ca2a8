#include "nn/integer_wanted.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

namespace bitgrad::inference::integer {
namespace {

// Real values.
struct Range {
  double low = 0, high = 0;

  bool holds(const Range& other) const { return low <= other.low && high >= other.high; }
  Range grown(double by) const { return {low - by, high + by}; }
};
Range range_of(const Wanted& w) {
  const double s = w.scale.scale;
  const auto zero = static_cast<int64_t>(w.scale.zero);
  return {s * static_cast<double>(w.lo - zero), s * static_cast<double>(w.hi - zero)};
}

// Codes of at least this range, which has 0.
CodeScale scale_of(const Range& range) {
  constexpr double kSteps = 255;
  const double s = (range.high - range.low) / kSteps;
  const double zero = std::clamp(std::rint(-128 - range.low / s), -128.0, 127.0);
  return {static_cast<float>(s), static_cast<int32_t>(zero)};
}

// Whether the codes of a node are those of what it reads, in one scale.
bool passes_on(const Node& node) {
  if (const auto* const op = std::get_if<Pointwise>(&node.operation))
    return op->op == UnaryOp::relu || op->op == UnaryOp::hardtanh;
  if (const auto* const op = std::get_if<Join>(&node.operation)) return op->kind == JoinKind::kConcat;
  return std::holds_alternative<Reshape>(node.operation) || std::holds_alternative<MaxPool>(node.operation);
}

}  // namespace

Wanted Wanted::within(double low, double high) const {
  Wanted w = *this;
  w.lo = std::max<int64_t>(lo, scale.zero + std::llrint(std::max(low / scale.scale, -512.0)));
  w.hi = std::min<int64_t>(hi, scale.zero + std::llrint(std::min(high / scale.scale, 512.0)));
  return w;
}

Wanted wanted_by_all(const Graph& graph, Value v, const Wanted& first,
                     const std::function<Wanted(const Node&, const Quantize&)>& wanted_by) {
  std::set<Value> reached{v};
  std::vector<Wanted> all;
  std::optional<size_t> direct;
  for (Value reader = v + 1; reader <= graph.output(); ++reader) {  // inputs come before what reads them
    const Node& node = graph[reader];
    const bool reads =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](Value x) { return reached.contains(x); });
    if (!reads || node.form.dtype != (std::holds_alternative<Quantize>(node.operation) ? dtypes::int8 : dtypes::fp32))
      continue;
    if (const auto* const q = std::get_if<Quantize>(&node.operation)) {
      all.push_back(wanted_by(node, *q));
      if (node.inputs[0] == v && !direct) direct = all.size() - 1;
    } else if (passes_on(node)) {
      reached.insert(reader);
    }
  }
  Range range;
  for (const Wanted& w : all) range = {std::min(range.low, range_of(w).low), std::max(range.high, range_of(w).high)};
  if (direct && range_of(all[*direct]).grown(all[*direct].scale.scale).holds(range)) return all[*direct];
  for (const Wanted& w : all)
    if (range_of(w).holds(range)) return w;
  Wanted wide = first;
  wide.lo = kLeastCode;
  wide.hi = kMostCode;
  if (!all.empty()) wide.scale = scale_of(range);
  return wide;
}

}  // namespace bitgrad::inference::integer
