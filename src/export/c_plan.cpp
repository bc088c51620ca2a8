#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "bitgrad/base/error.h"
#include "export/c_writer.h"
#include "export/targets.h"

namespace bitgrad::c_target {

namespace {

using inference::Graph;
using inference::Node;
using inference::Product;
using inference::Quantize;
using inference::Value;

constexpr int64_t kNever = 0x7fffffff;
constexpr int64_t kMostSteps = 15;  // as many as 4-bit codes need

template <typename T>
T of_feature(const std::vector<T>& x, size_t j, T none) {
  return x.empty() ? none : x.size() == 1 ? x[0] : x[j];
}

// Applies a monotone operation that may stand between a product and its quantizer; nullopt for any other operation.
std::optional<float> follow(const Node& node, float x, size_t j) {
  if (const auto* norm = std::get_if<inference::Normalize>(&node.operation)) {
    float y = x - of_feature(norm->mean, j, 0.0f);
    y = y * of_feature(norm->inv, j, 1.0f);
    y = y * of_feature(norm->gamma, j, 1.0f);
    return y + of_feature(norm->beta, j, 0.0f);
  }
  if (const auto* shift = std::get_if<inference::Shift>(&node.operation)) return x + of_feature(shift->shift, j, 0.0f);
  const auto* function = std::get_if<inference::Pointwise>(&node.operation);
  if (function == nullptr || node.form.dtype != dtypes::fp32) return std::nullopt;
  if (function->op == UnaryOp::relu) return x > 0 ? x : 0.0f;
  if (function->op == UnaryOp::hardtanh) return x < -1 ? -1.0f : x > 1 ? 1.0f : x;
  return std::nullopt;
}

struct Chain {
  std::vector<const Node*> between;
  Value end = -1;
};

// The chain of nodes from an integer product to a quantizer, if each is the only reader of the one before; otherwise
// empty.
Chain chain_from(const Graph& graph, Value product) {
  Chain chain;
  for (Value now = product;;) {
    const Node* const reader = graph.only_reader(now);
    if (reader == nullptr || reader->inputs.size() != 1) return {};
    now = static_cast<Value>(reader - graph.nodes().data());
    if (const auto* q = std::get_if<Quantize>(&reader->operation)) {
      const bool few = q->rule == CodeRule::kSign || q->rule == CodeRule::kPositive || q->hi - q->lo <= kMostSteps;
      if (!few || !quantize_refusal(*q).empty()) return {};
      chain.end = now;
      return chain;
    }
    if (!follow(*reader, 0.0f, 0)) return {};
    chain.between.push_back(reader);
  }
}

Thresholds find_thresholds(const Graph& graph, const Node& node, const Product& op, const Chain& chain) {
  const Node& in = graph[node.inputs[0]];
  const auto& quantize = std::get<Quantize>(graph[chain.end].operation);
  const std::vector<float> scale = output_scales(in, op);
  const std::vector<float> bias = op.bias.defined() ? op.bias.to_vector() : std::vector<float>{};
  const int64_t most = largest_sum(in, op);
  Thresholds t;
  const DTypeInfo& info = quantize.spec.dtype.info();
  const bool two = quantize.rule == CodeRule::kSign || quantize.rule == CodeRule::kPositive;
  t.count = two ? 1 : quantize.hi - quantize.lo;
  const int step = info.kind == DTypeKind::kSign ? 2 : 1;
  for (size_t j = 0; j < static_cast<size_t>(op.weight.rows()); ++j) {
    const auto code = [&](int64_t sum) {
      float x = static_cast<float>(sum) * of_feature(scale, j, 1.0f);
      if (!bias.empty()) x = x + bias[j];
      for (const Node* each : chain.between) x = *follow(*each, x, j);
      return code_of(quantize, x, j);
    };
    const int64_t first = code(-most), last = code(most);
    const int direction = last >= first ? 1 : -1;
    t.base.push_back(static_cast<int>(first));
    t.direction.push_back(direction * step);
    for (int64_t i = 1; i <= t.count; ++i) {
      const int64_t wanted = first + direction * step * i;  // reached from sum `low` on
      int64_t low = -most, high = most + 1;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const bool reached = direction > 0 ? code(middle) >= wanted : code(middle) <= wanted;
        reached ? high = middle : low = middle + 1;
      }
      t.at.push_back(low > most ? kNever : low);
    }
  }
  return t;
}

// Whether a value of signs is read only by products with signs, possibly after pooling and reshaping.
bool as_bits(const Graph& graph, Value value) {
  if (graph[value].form.dtype != dtypes::bint1 || graph.readers(value) == 0 || value == graph.output()) return false;
  for (const Node& node : graph.nodes())
    for (const Value input : node.inputs) {
      if (input != value) continue;
      const auto own = static_cast<Value>(&node - graph.nodes().data());
      const auto* product = std::get_if<Product>(&node.operation);
      const bool signs = product != nullptr && product->weight.dtype() == dtypes::bint1 &&
                         (!product->conv || product->conv->groups == 1) && sums_integers(graph, node, *product);
      const bool passes = std::holds_alternative<inference::MaxPool>(node.operation) ||
                          std::holds_alternative<inference::Reshape>(node.operation);
      if (!signs && !(passes && as_bits(graph, own))) return false;
    }
  return true;
}

Held held_of(const Graph& graph, Value value) {
  const DType d = graph[value].form.dtype;
  if (d == dtypes::fp32 || d == dtypes::bf16) return Held::kFloat;
  if (d == dtypes::int32) return Held::kInt32;
  if (as_bits(graph, value)) return Held::kBits;
  return d.kind() == DTypeKind::kUint ? Held::kUint8 : Held::kInt8;
}

// Assigns buffers of each type. A value may not overlap any other that is alive at the same time.
void place_all(const Graph& graph, Plan& plan) {
  const size_t n = plan.places.size();
  std::vector<size_t> last(n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (const Value input : graph.nodes()[i].inputs) last[static_cast<size_t>(input)] = i;
  }
  last[n - 1] = n;
  std::vector<size_t> first(n);
  for (size_t i = 0; i < n; ++i) first[i] = i;
  // A product with thresholds already writes the codes of its quantizer, so these are alive from there on.
  for (size_t i = 0; i < n; ++i)
    if (plan.ends[i] >= 0) first[static_cast<size_t>(plan.ends[i])] = i;
  for (size_t i = 0; i < n; ++i) {
    Place& place = plan.places[i];
    if (!place.made) continue;
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t k = 0; k < i; ++k) {
        const Place& other = plan.places[k];
        const bool alive = other.made && other.held == place.held && last[k] >= first[i] && first[k] <= last[i];
        if (!alive || other.offset >= place.offset + place.elements || place.offset >= other.offset + other.elements)
          continue;
        place.offset = other.offset + other.elements;
        moved = true;
      }
    }
    int64_t& pool = plan.pool[static_cast<size_t>(place.held)];
    pool = std::max(pool, place.offset + place.elements);
  }
}

}  // namespace

int64_t largest_sum(const Node& in, const Product& op) {
  const auto range = [](DType d, const std::shared_ptr<const QuantParams>& p) {
    const DTypeInfo& i = d.info();
    return p && p->zero ? i.qmax - i.qmin : std::max(std::abs(i.qmin), std::abs(i.qmax));
  };
  return range(in.form.dtype, in.params) * range(op.weight.dtype(), op.weight.quant()) * op.weight.cols();
}

std::string quantize_refusal(const Quantize& op) {
  if (op.dynamic)
    return concat("scheme ", op.spec.scheme,
                  " finds its scales from each batch. Give it an observer, or a scheme that "
                  "learns its step");
  const bool known = op.rule == CodeRule::kInverse || op.rule == CodeRule::kDivide || op.rule == CodeRule::kOffset ||
                     op.rule == CodeRule::kTimes || op.rule == CodeRule::kSign || op.rule == CodeRule::kPositive;
  return known ? ""
               : concat("scheme ", op.spec.scheme, " is not known. Use fixed, binary, lsq, or one with an observer");
}

int64_t code_of(const Quantize& op, float x, size_t j) {
  if (op.rule == CodeRule::kSign) return x >= 0 ? 1 : -1;
  if (op.rule == CodeRule::kPositive) return x > 0 ? 1 : 0;
  float u = x;
  const float s = of_feature(op.scale, j, 1.0f);
  if (op.rule == CodeRule::kInverse) u = x * (1.0f / s);
  if (op.rule == CodeRule::kDivide && !op.scale.empty()) u = x / s;
  if (op.rule == CodeRule::kOffset) u = (x - of_feature(op.shift, j, 0.0f)) / s;
  if (op.rule == CodeRule::kTimes) u = x * s;
  u = std::rint(u) + static_cast<float>(of_feature(op.zero, j, 0));
  return static_cast<int64_t>(std::clamp(u, static_cast<float>(op.lo), static_cast<float>(op.hi)));
}

bool sums_integers(const Graph& graph, const Node& node, const Product& op) {
  const Node& in = graph[node.inputs[0]];
  const ScaleMap map = op.weight.scale_map();
  const auto* q = std::get_if<Quantize>(&in.operation);
  if (!are_integers(in.form.dtype) || !are_integers(op.weight.dtype()) || (q != nullptr && q->dynamic)) return false;
  if (map.offset != nullptr || (!map.per_tensor() && !map.per_row())) return false;
  if (in.params && (in.params->offset || (in.params->scale && in.params->scale->numel() > 1))) return false;
  return largest_sum(in, op) < kNever;
}

std::vector<float> output_scales(const Node& in, const Product& op) {
  const auto numbers = [](const std::shared_ptr<const QuantParams>& p) {
    return p && p->scale ? p->scale->to_vector() : std::vector<float>{1.0f};
  };
  std::vector<float> out = numbers(op.weight.quant());
  const float s = numbers(in.params)[0];
  for (float& each : out) each = s * each;
  return out;
}

int64_t bytes_of(Held held) { return held == Held::kInt8 || held == Held::kUint8 ? 1 : 4; }

Plan make_plan(const Graph& graph, bool own_input) {
  const size_t n = graph.nodes().size();
  Plan plan;
  plan.places.resize(n);
  plan.ends.assign(n, -1);
  plan.thresholds.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const auto value = static_cast<Value>(i);
    const Form& form = graph[value].form;
    Place& place = plan.places[i];
    place.held = held_of(graph, value);
    place.elements = form.sample.numel();
    if (place.held == Held::kBits) place.elements = form.sample_rows() * ((form.features() + 31) / 32);
  }
  plan.places[0].made = own_input;
  for (size_t i = 0; i < n; ++i) {
    const auto* product = std::get_if<Product>(&graph.nodes()[i].operation);
    if (product == nullptr || product->integer_out || !sums_integers(graph, graph.nodes()[i], *product)) continue;
    const Chain chain = chain_from(graph, static_cast<Value>(i));
    if (chain.end < 0) continue;
    plan.ends[i] = chain.end;
    plan.thresholds[i] = find_thresholds(graph, graph.nodes()[i], *product, chain);
    plan.places[i].made = false;
    for (const Node* node : chain.between) plan.places[static_cast<size_t>(node - graph.nodes().data())].made = false;
  }
  place_all(graph, plan);
  return plan;
}

// Moves quantizers before the max pools that feed them.

namespace {

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
