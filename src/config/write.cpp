// RunConfig -> YAML: every key that applies, with its value, in the order of keys.inc.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/quant/scheme.h"
#include "config/choices.h"
#include "config/schema.h"
#include "config/value_texts.h"

namespace bitgrad {
namespace config {
namespace {

// Writes the keys of one map as {a: 1, b: 2}.
class Writer {
 public:
  explicit Writer(std::string group, std::string selected = "")
      : group_(std::move(group)), selected_(std::move(selected)) {}
  template <typename T>
  void operator()(std::string_view key, const T& field) {
    const KeySpec* spec = find_key(group_, key);
    ensure(spec != nullptr, "config", "no key ", group_, '.', key);
    if (!spec->applies(selected_)) return;
    if constexpr (requires { field.list; }) {
      if (!field.list.empty()) add(key, yaml_text(field.list[0]));
    } else if (!omitted(*spec, field)) {
      add(key, yaml_text(field));
    }
  }
  void add(std::string_view key, const std::string& value) { keys_.emplace_back(key, value); }
  void drop(std::string_view key) {
    std::erase_if(keys_, [&](const auto& entry) { return entry.first == key; });
  }
  // Puts keys that are there at the end.
  void move_back(std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys)
      std::stable_partition(keys_.begin(), keys_.end(), [&](const auto& entry) { return entry.first != key; });
  }
  std::string map() const {
    std::string body;
    for (const auto& [key, value] : keys_) body += concat(body.empty() ? "" : ", ", key, ": ", value);
    return concat('{', body, '}');
  }

 private:
  // Keys without a default are left out where nothing is set.
  template <typename T>
  static bool omitted(const KeySpec& spec, const T& field) {
    if constexpr (requires { field.first.has_value(); })
      return !field.first || !field.second;  // open numbers are those of the rule
    else if constexpr (requires { field.has_value(); })
      return !Section<typename T::value_type> && !spec.has_default() && !field;
    else if constexpr (requires { field.empty(); } || std::is_arithmetic_v<T> || Section<T>)
      return !spec.has_default() && field == T{};
    else
      return false;
  }

  std::string group_, selected_;
  std::vector<std::pair<std::string, std::string>> keys_;
};

// The value of the key that determines which others exist.
template <Section C>
std::string selected_of(const C& c) {
  std::string selected;
  visit(
      [&](std::string_view key, const auto& field) {
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::string>)
          if (key == selector_of(section_group<C>(), /*merged=*/true)) selected = field;
      },
      c);
  return selected;
}

void write_own_keys(Writer& writer, const Attributes& keys) {
  for (const auto& [key, value] : keys.values()) writer.add(key, yaml_text(value));
}
std::string own_keys(const Attributes& keys) {
  Writer writer("");
  write_own_keys(writer, keys);
  return writer.map();
}

}  // namespace

template <Section C>
std::string yaml_text(const C& c) {
  Writer writer(std::string(section_group<C>()), selected_of(c));
  visit(writer, c);
  if constexpr (std::is_same_v<C, ScheduleConfig>)
    if (!c.factors.empty()) writer.drop("factor");
  if constexpr (std::is_same_v<C, BudgetConfig>) writer.move_back({"batch_norm"});
  if constexpr (std::is_same_v<C, CheckpointSection>)
    if (c.keep == 0) writer.drop("keep");
  if constexpr (std::is_same_v<C, DatasetConfig>) {
    if (c.fraction > 0) return concat("{fraction: ", yaml_text(c.fraction), '}');
    if (c.limit == 0) writer.drop("limit");
    writer.move_back({"limit", "augment", "transforms"});
    write_own_keys(writer, c.keys);
  }
  return writer.map();
}
std::string yaml_text(const std::optional<ObserverSpec>& c) { return c ? yaml_text(*c) : "{name: none}"; }
std::string yaml_text(const TransformConfig& t) { return concat('{', t.name, ": ", own_keys(t.keys), '}'); }

namespace {

std::string loss(const RunConfig& c) {
  return c.loss_keys.values().empty() ? c.loss : concat('{', c.loss, ": ", own_keys(c.loss_keys), '}');
}
std::string metrics(const std::map<std::string, Attributes>& all) {
  Writer writer("");
  for (const auto& [name, keys] : all) writer.add(name, own_keys(keys));
  return writer.map();
}

std::string_view alpha_of(const QuantSpec& c) {
  if (!c.alpha) return "none";
  using Kind = Granularity::Kind;
  return c.granularity.kind == Kind::kTensor ? "tensor" : c.granularity.kind == Kind::kToken ? "token" : "channel";
}

// How values become codes, and the training of learned parts. Omits keys that mean nothing beside the others.
void write_codes(Writer& writer, Role role, const QuantSpec& c, const LearnedSpec& learned) {
  const std::string_view group = group_of(role);
  visit_quant(
      [&](std::string_view key, const auto& field) {
        if (find_key(group, key) == nullptr) return;
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::optional<SteRule>>)
          writer(key, ste_rule(c));
        else
          writer(key, field);
      },
      c);
  if (role != Role::kGradients) {
    writer("alpha", std::string(alpha_of(c)));
    if (ste_rule(c) == SteRule::kTanh) writer.add("ste_t", yaml_text(Pair{c.ste_t_first, c.ste_t_last}));
    if (choices::has_learned_parts(c)) writer("learned", learned);
  }
  write_own_keys(writer, c.keys);
}

std::string weights(const ParameterSpec& c, bool of_rule = false) {
  Writer writer("weights", c.quant ? c.quant->scheme : "");
  if (c.quant)
    write_codes(writer, Role::kWeights, *c.quant, c.learned);
  else
    writer("dtype", dtypes::fp32);
  visit(
      [&](std::string_view key, const auto& field) {
        if (of_rule && !choices::for_rule(key)) return;
        if (!c.quant && !choices::for_float(key)) return;
        if (key == "optimizer" && c.optimizer.empty())
          writer.add(key, "default");
        else
          writer(key, field);
      },
      c);
  return writer.map();
}

std::string activations(const ActivationQuant& c, Role role = Role::kActivations) {
  Writer writer(std::string(group_of(role)), c.spec.scheme);
  write_codes(writer, role, c.spec, c.learned);
  if (role == Role::kActivations) writer("observer", c.observer), writer("grad", c.grad);
  return writer.map();
}

std::string rule(const QuantRuleConfig& c) {
  const LayerQuantConfig& quant = c.quant;
  Writer writer("rule");
  writer("layers", c.layers);
  writer("recipe", quant.recipe);
  if (quant.group) writer("group", *quant.group);
  if (quant.weights) writer.add("weights", weights(*quant.weights, /*of_rule=*/true));
  if (quant.activations) writer.add("activations", activations(*quant.activations));
  if (quant.compute) writer("compute", *quant.compute);
  if (quant.output_rounding) writer("output_rounding", *quant.output_rounding);
  return writer.map();
}

// Calls add(key, value) for each key that is set.
template <typename Add>
void prepare(const PrepareConfig& c, Add add) {
  if (c.recipe) add("recipe", yaml_text(*c.recipe));
  if (c.first) add("first", yaml_text(*c.first));
  if (c.last) add("last", yaml_text(*c.last));
  if (!c.rules.empty()) add("rules", list_of(c.rules, rule));
}

std::string phase(const QuantPhaseConfig& c) {
  Writer writer("phase");
  writer("from", c.from);
  if (c.prepare) prepare(*c.prepare, [&](std::string_view key, const std::string& value) { writer.add(key, value); });
  writer("quantization", c.mode.quantization);
  writer("observers", c.mode.observers);
  if (!c.mode.norm_statistics) writer("norm_statistics", c.mode.norm_statistics);
  return writer.map();
}

void write_quant(std::ostream& out, const QuantSection& c) {
  const auto line = [&](std::string_view key, const std::string& value) {
    out << "  " << key << ": " << value << '\n';
  };
  out << "quant:\n";
  prepare(c.prepare, line);
  if (!c.phases.empty()) out << "  phases:\n";
  for (const QuantPhaseConfig& p : c.phases) out << "    - " << phase(p) << '\n';
  if (c.budget) line("budget", yaml_text(*c.budget));
  line("weights", weights(c.weights));
  if (c.activations) line("activations", activations(*c.activations));
  line("compute", yaml_text(c.product.compute));
  line("backward", yaml_text(c.product));
  line("requantize_every", yaml_text(c.requantize_every));
}

std::string layer(const LayerSpec& c, const QuantSection& quant);
std::string layers_of(const LayerList& list, const QuantSection& quant) {
  return list_of(list.layers, [&](const LayerSpec& l) { return concat('{', layer(l, quant), '}'); });
}

void write_lists(Writer& writer, const LayerKind& kind, const LayerSpec& c, const QuantSection& quant) {
  if (kind.lists.kind != LayerLists::Kind::kIndexed) {
    for (const LayerList& list : c.lists) writer.add(list.key, layers_of(list, quant));
    return;
  }
  writer.add("layers", list_of(c.lists, [&](const LayerList& list) { return layers_of(list, quant); }));
}

std::string layer(const LayerSpec& c, const QuantSection& quant) {
  const LayerKind& kind = *find_layer_kind(c.kind);
  using Quantizer = LayerKind::Quantizer;
  if (kind.quantizer == Quantizer::kActivations)
    return concat(c.kind, ": ", !c.activation || quant.activations == c.activation ? "{}" : activations(*c.activation));
  if (kind.quantizer == Quantizer::kGradients)
    return concat(c.kind, ": ", c.activation ? activations(*c.activation, Role::kGradients) : "{}");
  Writer writer(group_of_kind(c.kind));
  for (const Key& key : kind.keys)
    if (c.attributes.contains(key.name)) writer.add(key.name, yaml_text(c.attributes.values().at(key.name)));
  write_lists(writer, kind, c, quant);
  if (kind.weights && !(c.weight == quant.weights)) writer.add("weights", weights(c.weight));
  if (kind.product) {
    if (c.product.compute != quant.product.compute) writer.add("compute", yaml_text(c.product.compute));
    ProductSpec own = c.product;
    own.compute = quant.product.compute;
    if (!(own == quant.product)) writer.add("backward", yaml_text(c.product));
  }
  return concat(c.kind, ": ", writer.map());
}

}  // namespace
}  // namespace config
std::ostream& operator<<(std::ostream& out, const Quantity& quantity) {
  return out << quantity.value << (quantity.unit == Quantity::Unit::kSteps ? " steps" : " epochs");
}

std::string to_portable_yaml(const RunConfig& config) {
  RunConfig c = config;
  c.data.root.clear();
  for (std::string& path : c.plugins) path.erase(0, path.rfind('/') + 1);
  return to_yaml(c);
}

std::string to_yaml(const RunConfig& c) {
  using namespace config;
  TextWriter out;
  out << "version: " << c.version << '\n';
  if (!c.plugins.empty()) out << "plugins: " << yaml_text(c.plugins) << '\n';
  out << "run: " << yaml_text(c.run) << "\ndevice: " << yaml_text(c.device) << '\n';
  out << "data:\n";
  if (!c.data.root.empty()) out << "  root: " << yaml_text(c.data.root) << '\n';
  if (!c.data.class_names.empty()) out << "  class_names: " << yaml_text(c.data.class_names) << '\n';
  if (!c.data.tokenizer.empty()) out << "  tokenizer: " << yaml_text(c.data.tokenizer) << '\n';
  if (c.data.chat) out << "  chat: " << yaml_text(*c.data.chat) << '\n';
  out << "  train: " << yaml_text(c.data.train) << '\n';
  if (c.data.valid) out << "  valid: " << yaml_text(*c.data.valid) << '\n';
  if (c.data.test) out << "  test: " << yaml_text(*c.data.test) << '\n';
  if (c.data.normalize.given())
    out << "  normalize: " << yaml_text(c.data.normalize) << '\n';
  else if (!choices::reads_ids(c))
    out << "  affine: " << yaml_text(c.data.affine) << '\n';
  out << "model:\n";
  if (!c.init_from.empty()) out << "  init_from: " << yaml_text(c.init_from) << '\n';
  if (!c.rename.empty()) out << "  rename: " << yaml_text(c.rename) << '\n';
  if (!c.ignore.empty()) out << "  ignore: " << yaml_text(c.ignore) << '\n';
  if (c.other_inputs) out << "  other_inputs: " << yaml_text(c.other_inputs) << '\n';
  out << "  values: " << yaml_text(c.values) << '\n';
  if (!c.flat) out << "  flat: false\n";
  out << "  layers:\n";
  for (const LayerSpec& l : c.layers) out << "    - " << layer(l, c.quant) << '\n';
  write_quant(out, c.quant);
  if (c.adapters) out << "adapters: " << yaml_text(*c.adapters) << '\n';
  out << "batch: " << yaml_text(c.batch) << '\n';
  if (c.ranks != RanksSection()) out << "ranks: " << yaml_text(c.ranks) << '\n';
  out << "loss: " << loss(c) << "\noptim: " << yaml_text(c.optim) << "\nschedule: " << yaml_text(c.schedule) << '\n';
  out << "train:\n  stop: " << c.train.stop << '\n';
  if (!c.train.best.metric.empty()) out << "  best: " << yaml_text(c.train.best) << '\n';
  if (!c.train.metrics.empty()) out << "  metrics: " << metrics(c.train.metrics) << '\n';
  if (c.train.early_stop) out << "  early_stop: " << yaml_text(*c.train.early_stop) << '\n';
  if (c.data.valid || c.data.test) out << "  eval: " << yaml_text(c.train.eval) << '\n';
  if (c.train.ema > 0) out << "  ema: " << yaml_text(c.train.ema) << '\n';
  if (!c.train.frozen.empty()) out << "  frozen: " << yaml_text(c.train.frozen) << '\n';
  out << "checkpoint: " << yaml_text(c.checkpoint) << "\nlog: " << yaml_text(c.log) << '\n';
  return out.str();
}

}  // namespace bitgrad
