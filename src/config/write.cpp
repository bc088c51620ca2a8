// RunConfig -> YAML: every key that applies, with its value, in the order of fields.h.
#include "bitgrad/base/text_stream.h"
#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/quant/scheme_fields.h"
#include "config/choices.h"
#include "config/fields.h"
#include "config/numbers.h"
#include "config/schema.h"

namespace bitgrad {
namespace config {
namespace {

bool plain_word(std::string_view s) {
  constexpr std::string_view kSafe = "_./+-";
  const auto ok = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kSafe.find(c) != std::string_view::npos;
  };
  if (s.empty() || s == "-" || s == "---" || s == "..." || s == "null" || s == "Null" || s == "NULL") return false;
  for (char c : s)
    if (!ok(c)) return false;
  return true;
}

std::string text(const std::string& s) {
  if (plain_word(s)) return s;
  std::string out = "\"";
  for (char c : s) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20 || byte == 0x7F)
      out += concat("\\x", "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]);  // else folded into a blank
    else
      out += c;
  }
  return out + '"';
}
std::string text(int64_t x) { return concat(x); }
std::string text(double x) { return number_text(x); }
std::string text(float x) { return number_text(x); }
std::string text(bool x) { return x ? "true" : "false"; }
std::string text(DType dtype) { return text(dtype.name()); }
std::string text(const Quantity& quantity) { return concat(quantity); }
template <NamedEnum E>
std::string text(E value) {
  return text(std::string(enum_name(value)));
}
// "uniform(a,b)", "normal(mean,sd)", "constant(a)", or a name without numbers; the default has the name that it stands
// for.
std::string text(const Init& init) {
  std::string out = init.name.empty() ? "glorot_uniform" : init.name;
  for (const choices::InitKind& kind : choices::init_kinds())
    if (kind.name == init.name && kind.numbers > 0)
      out += concat('(', number_text(init.a), kind.numbers == 2 ? "," + number_text(init.b) : "", ')');
  return text(out);
}
std::string text(const Granularity& granularity) { return concat(granularity); }
std::string text(const std::array<double, 2>& pair) {
  return concat('[', number_text(pair[0]), ", ", number_text(pair[1]), ']');
}
std::string text(const std::optional<double>& x) { return x ? number_text(*x) : "none"; }
std::string text(const std::optional<float>& x) { return x ? number_text(*x) : "none"; }
std::string text(const std::optional<int64_t>& x) { return x ? concat(*x) : "auto"; }
std::string text(const std::optional<Quantity>& x) { return x ? concat(*x) : "off"; }

// [a, b], from the text of each item.
template <typename Items, typename Text>
std::string list_of(const Items& items, Text text_of) {
  std::string out;
  for (const auto& item : items) out += concat(out.empty() ? "" : ", ", text_of(item));
  return concat('[', out, ']');
}
std::string text(const std::vector<int64_t>& numbers) {
  return list_of(numbers, [](int64_t number) { return concat(number); });
}

std::string text(const std::vector<double>& numbers) {
  return list_of(numbers, [](double number) { return number_text(number); });
}

std::string text(const std::vector<Quantity>& lengths) {
  return list_of(lengths, [](const Quantity& length) { return text(length); });
}

std::string text(const std::vector<std::string>& texts) {
  return list_of(texts, [](const std::string& t) { return text(t); });
}

std::string text(const std::vector<WeightName>& names) {
  std::string out;
  for (const WeightName& n : names)
    out += concat(out.empty() ? "" : ", ", text(n.parameter), ": ", text(value_text(n)));
  return concat('{', out, '}');
}

std::string text(const LearnedSpec& c);
std::string text(const std::optional<ObserverSpec>& c);
std::string text(const AugmentConfig& c);
std::string text(const BopSpec& c);
std::string text(const ScheduleConfig& c);

// Writes the keys of one map as {a: 1, b: 2}.
std::string own_keys(const Attributes& keys);
std::string text(const std::vector<TransformConfig>& transforms) {
  return list_of(transforms, [](const auto& t) { return concat('{', t.name, ": ", own_keys(t.keys), '}'); });
}

class Writer {
 public:
  explicit Writer(std::string group, std::string selected = "")
      : group_(std::move(group)), selected_(std::move(selected)) {}
  template <typename T>
  void operator()(std::string_view key, const T& field) {
    const KeySpec* spec = find_key(group_, key);
    ensure(spec != nullptr, "config", "no key ", group_, '.', key);
    if (spec->applies(selected_)) add(key, text(field));
  }
  void add(std::string_view key, const std::string& value) {
    body_ += concat(body_.empty() ? "" : ", ", key, ": ", value);
  }
  std::string map() const { return concat('{', body_, '}'); }

 private:
  std::string group_, selected_, body_;
};

template <typename Visit>
std::string map_of(std::string_view group, std::string selected, Visit visit) {
  Writer writer(std::string(group), std::move(selected));
  visit(writer);
  return writer.map();
}

std::string text(const LearnedSpec& c) {
  return map_of("learned", "", [&](auto& w) { visit_learned(w, c); });
}
std::string text(const std::optional<ObserverSpec>& c) {
  if (!c) return "{name: none}";
  return map_of("observer", c->name, [&](auto& w) { visit_observer(w, *c); });
}
std::string backward(const ProductSpec& c) {
  return map_of("backward", "", [&](auto& w) { visit_backward(w, c); });
}
std::string text(const AugmentConfig& c) {
  return map_of("augment", "", [&](auto& w) { visit_augment(w, c); });
}
std::string text(const ScheduleConfig& c) {
  return map_of("schedule", c.name, [&](Writer& writer) {
    visit_schedule(
        [&](std::string_view key, const auto& value) {
          if constexpr (requires { value.empty(); })
            if (value.empty()) return;  // factor or factors, a metric that is that of train.best
          if constexpr (std::is_same_v<decltype(value), const double&>)
            if (key == "factor" && !c.factors.empty()) return;
          writer(key, value);
        },
        c);
  });
}

std::string text(const BopSpec& c) {
  return map_of("bop", "", [&](auto& w) { visit_bop(w, c); });
}

std::string text(const Attribute& attribute) {
  return std::visit([](const auto& x) { return text(x); }, attribute.value());
}
void write_own_keys(Writer& writer, const Attributes& keys) {
  for (const auto& [key, value] : keys.values()) writer.add(key, text(value));
}
std::string own_keys(const Attributes& keys) {
  Writer writer("");
  write_own_keys(writer, keys);
  return writer.map();
}
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
    if (ste_rule(c) == SteRule::kTanh)
      writer.add("ste_t", list_of(std::array{c.ste_t_first, c.ste_t_last}, [](float t) { return number_text(t); }));
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
  visit_weights(
      [&](std::string_view key, const auto& field) {
        if (of_rule && !choices::for_rule(key)) return;
        if (!c.quant && !choices::for_float(key)) return;
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::optional<MomentKind>>)
          writer(key, field.value_or(MomentKind::kFp32));
        else if (key == "optimizer" && c.optimizer.empty())
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
  return writer.map();
}

// Calls add(key, value) for each key that is set.
template <typename Add>
void prepare(const PrepareConfig& c, Add add) {
  if (c.recipe) add("recipe", text(*c.recipe));
  if (c.first) add("first", text(*c.first));
  if (c.last) add("last", text(*c.last));
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
  if (c.budget) line("budget", map_of("budget", "", [&](auto& w) { visit_budget(w, *c.budget); }));
  line("weights", weights(c.weights));
  if (c.activations) line("activations", activations(*c.activations));
  line("compute", text(c.product.compute));
  line("backward", backward(c.product));
  line("requantize_every", text(c.requantize_every));
}

// Omits optional keys that are not set.
class DatasetWriter {
 public:
  explicit DatasetWriter(Writer& writer) : writer_(writer) {}
  template <typename T>
  void operator()(std::string_view key, const T& field) {
    const bool optional = key == "images" || key == "labels" || key == "targets" || key == "limit" ||
                          key == "transforms" || key == "augment" || key == "fraction" || key == "format";
    if (!optional || !(field == T{})) writer_(key, field);
  }

 private:
  Writer& writer_;
};

std::string adapters(const AdaptersConfig& c) {
  return map_of("adapters", "", [&](Writer& writer) {
    visit_adapters(
        [&]<typename T>(std::string_view key, const T& field) {
          const bool given = key == "train" || key == "init_from" ? !(field == T{}) : true;
          if (given) writer(key, field);
        },
        c);
  });
}

std::string dataset(const DatasetConfig& c) {
  Writer writer("dataset", c.format);
  if (c.fraction > 0) {
    writer("fraction", c.fraction);
    return writer.map();
  }
  visit_dataset(DatasetWriter(writer), c);
  write_own_keys(writer, c.keys);
  return writer.map();
}

std::string early_stop(const EarlyStopConfig& c) {
  return map_of("early_stop", "", [&](Writer& writer) {
    visit_early_stop(
        [&]<typename T>(std::string_view key, const T& field) {
          const bool given = key == "metric" || key == "mode" ? !(field == T{}) : true;
          if (given) writer(key, field);
        },
        c);
  });
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
    if (c.attributes.contains(key.name)) writer.add(key.name, text(c.attributes.values().at(key.name)));
  write_lists(writer, kind, c, quant);
  if (kind.weights && !(c.weight == quant.weights)) writer.add("weights", weights(c.weight));
  if (kind.product) {
    if (c.product.compute != quant.product.compute) writer.add("compute", text(c.product.compute));
    ProductSpec own = c.product;
    own.compute = quant.product.compute;
    if (!(own == quant.product)) writer.add("backward", backward(c.product));
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
  if (!c.plugins.empty())
    out << "plugins: " << list_of(c.plugins, [](const std::string& path) { return text(path); }) << '\n';
  out << "run: " << map_of("run", "", [&](auto& w) { visit_run(w, c.run); }) << '\n';
  out << "device: " << map_of("device", c.device.kind, [&](auto& w) { visit_device(w, c.device); }) << '\n';
  out << "data:\n";
  if (!c.data.root.empty()) out << "  root: " << text(c.data.root) << '\n';
  if (!c.data.class_names.empty()) out << "  class_names: " << text(c.data.class_names) << '\n';
  if (!c.data.tokenizer.empty()) out << "  tokenizer: " << text(c.data.tokenizer) << '\n';
  out << "  train: " << dataset(c.data.train) << '\n';
  if (c.data.valid) out << "  valid: " << dataset(*c.data.valid) << '\n';
  if (c.data.test) out << "  test: " << dataset(*c.data.test) << '\n';
  if (!(c.data.normalize == NormalizeConfig{}))
    out << "  normalize: " << map_of("normalize", "", [&](auto& w) { visit_normalize(w, c.data.normalize); }) << '\n';
  else if (!choices::reads_ids(c))
    out << "  affine: " << text(c.data.affine) << '\n';
  out << "model:\n";
  if (!c.init_from.empty()) out << "  init_from: " << text(c.init_from) << '\n';
  if (!c.rename.empty()) out << "  rename: " << text(c.rename) << '\n';
  if (!c.ignore.empty()) out << "  ignore: " << text(c.ignore) << '\n';
  if (c.other_inputs) out << "  other_inputs: " << text(c.other_inputs) << '\n';
  out << "  values: " << text(c.values) << '\n';
  if (!c.flat) out << "  flat: false\n";
  out << "  layers:\n";
  for (const LayerSpec& l : c.layers) out << "    - " << layer(l, c.quant) << '\n';
  write_quant(out, c.quant);
  if (c.adapters) out << "adapters: " << adapters(*c.adapters) << '\n';
  out << "batch: " << map_of("batch", "", [&](auto& w) { visit_batch(w, c.batch); }) << '\n';
  out << "loss: " << loss(c) << '\n';
  out << "optim: " << map_of("optim", c.optim.spec.name, [&](auto& w) { visit_optim(w, c.optim); }) << '\n';
  out << "schedule: " << text(c.schedule) << '\n';
  out << "train:\n  stop: " << c.train.stop << '\n';
  if (const BestConfig& best = c.train.best; !best.metric.empty())
    out << "  best: {metric: " << best.metric << (best.mode.empty() ? "" : concat(", mode: ", best.mode)) << "}\n";
  if (!c.train.metrics.empty()) out << "  metrics: " << metrics(c.train.metrics) << '\n';
  if (c.train.early_stop) out << "  early_stop: " << early_stop(*c.train.early_stop) << '\n';
  if (c.data.valid || c.data.test)
    out << "  eval: " << map_of("eval", "", [&](auto& w) { visit_eval(w, c.train.eval); }) << '\n';
  if (c.train.ema > 0) out << "  ema: " << text(c.train.ema) << '\n';
  if (!c.train.frozen.empty()) out << "  frozen: " << text(c.train.frozen) << '\n';
  out << "checkpoint: {every: " << c.checkpoint_every;
  if (c.checkpoint_keep > 0) out << ", keep: " << c.checkpoint_keep;
  out << "}\n";
  out << "log: " << map_of("log", "", [&](auto& w) { visit_log(w, c); }) << '\n';
  return out.str();
}

}  // namespace bitgrad
