#include "config/schema.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "base/registration.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/transform.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/schedule.h"
#include "bitgrad/optim/update_rule.h"
#include "bitgrad/quant/quantizer.h"
#include "bitgrad/task/loss.h"
#include "bitgrad/task/metric.h"
#include "config/choices.h"
#include "config/steps.h"

namespace bitgrad::config {
namespace {

// All keys; update() adds those of newly registered kinds.
class Keys {
 public:
  Keys() {
#define BITGRAD_CONFIG_KEY(group, key, type, detail, standard, when, choices, doc) \
  add({{key, Type::type, detail, standard, doc}, group, when, choices});
#define BITGRAD_FIELD_AS(Struct, group, key, field, ...) BITGRAD_CONFIG_KEY(group, #key, __VA_ARGS__)
#include "config/keys.inc"
    for (const OptimizerKeys& rule : optimizer_keys()) add_rule(rule);
  }
  void update() {
    const uint64_t added = detail::added_names();
    if (added_ == added) return;
    added_ = added;
    const std::vector<const LayerKind*> kinds = layer_kinds();
    for (; kinds_ < kinds.size(); ++kinds_) add_kind(*kinds[kinds_]);
    const std::vector<const LossKind*> losses = loss_kinds();
    for (; losses_ < losses.size(); ++losses_)
      add_named("loss", losses[losses_]->name, losses[losses_]->doc, losses[losses_]->keys);
    const std::vector<const Metric*> metrics = bitgrad::metrics();
    for (; metrics_ < metrics.size(); ++metrics_)
      if (const Metric& m = *metrics[metrics_]; m.follow || !m.keys.empty())
        add_named("metrics", m.name, m.doc, m.keys);
    const std::vector<std::string> formats = dataset_formats();
    for (; formats_ < formats.size(); ++formats_) add_format(*find_dataset_format(formats[formats_]));
    const std::vector<std::string_view> schemes = quantizer_names();
    for (; schemes_ < schemes.size(); ++schemes_)
      for (const Role role : {Role::kWeights, Role::kActivations})
        for (const Key& key : known_quantizer(schemes[schemes_]).keys())
          add_selected(group_of(role), key, schemes[schemes_]);
    const std::vector<const TransformKind*> transforms = transform_kinds();
    for (; transforms_ < transforms.size(); ++transforms_)
      add_named("transform", transforms[transforms_]->name, transforms[transforms_]->doc,
                transforms[transforms_]->keys);
  }
  const KeySpec* find(std::string_view group, std::string_view key) const { return look_up(group, key); }
  const std::deque<KeySpec>& all() const { return keys_; }

 private:
  void add(KeySpec key) {
    // A list that does not grow is written in the line.
    const bool named = key.type == Type::kChoice || key.type == Type::kDType;
    if (named && !key.range.empty()) key.choices = split(std::exchange(key.range, ""), ',');
    KeySpec& added = keys_.emplace_back(std::move(key));
    index_.emplace(std::pair<std::string_view, std::string_view>(added.group, added.name), &added);
  }

  KeySpec* look_up(std::string_view group, std::string_view key) const {
    const auto found = index_.find({group, key});
    return found == index_.end() ? nullptr : found->second;
  }
  // Keys of a named kind, in a map under its name.
  void add_named(const std::string& group, const std::string& name, const std::string& doc,
                 const std::vector<Key>& keys) {
    if (keys.empty() && group == "loss") return;  // written as a bare name
    const std::string own = group_of_named(group, name);
    add({{name, Type::kMap, own, "", doc}, group});
    for (const Key& key : keys) add({key, own});
  }
  static void append(std::string& names, const std::string& name) { names += (names.empty() ? "" : ",") + name; }
  // A key that exists for one value of the group's selector.
  void add_selected(std::string_view group, const Key& own, std::string_view selected) {
    if (KeySpec* const known = look_up(group, own.name))
      append(known->when, std::string(selected));
    else
      add({own, std::string(group), std::string(selected)});
  }
  // Rules of hidden weights alone cannot be optim.aux.
  void add_rule(const OptimizerKeys& rule) {
    for (const std::string_view group : {"optim", "aux"}) {
      if (group == "aux" && choices::updates_hidden_only(std::string(rule.name))) continue;
      for (const std::string& key : split(std::string(rule.keys), ' '))
        if (KeySpec* const known = look_up(group, key))
          append(known->when, std::string(rule.name));
        else
          ensure(key.empty() || group == "aux", "config", "optimizers.inc: ", rule.name, " has an unknown key ", key);
    }
  }
  void add_format(const DatasetFormat& format) {
    for (const std::vector<std::string>* names : {&format.required, &format.optional})
      for (const std::string& name : *names) {
        KeySpec* const known = look_up("dataset", name);
        if (known == nullptr) continue;
        if (!known->when.empty() && !known->applies(format.name)) append(known->when, format.name);
        if (known->required() && names == &format.optional) append(known->optional, format.name);
      }
    for (const Key& key : format.keys) add_selected("dataset", key, format.name);
  }

  void add_kind(const LayerKind& kind) {
    using Quantizer = LayerKind::Quantizer;
    const std::string own = group_of_kind(kind.name);
    const std::string group = kind.quantizer == Quantizer::kActivations ? std::string(group_of(Role::kActivations))
                              : kind.quantizer == Quantizer::kGradients ? std::string(group_of(Role::kGradients))
                                                                        : own;
    add({{kind.name, Type::kMap, group, "", kind.doc}, "layer"});
    for (const Key& key : kind.keys) add({key, own});
    add_lists(kind, own);
    if (kind.weights) add({{"weights", Type::kMap, "weights", "", "own keys over those of quant.weights"}, own});
    if (!kind.product) return;
    add({{"compute", Type::kChoice, "", "=quant.compute", "how the product is computed", enum_names<Compute>()}, own});
    add({{"backward", Type::kMap, "backward", "", "own keys over those of quant.backward"}, own});
  }
  void add_lists(const LayerKind& kind, const std::string& own) {
    using Lists = LayerLists::Kind;
    if (kind.lists.kind == Lists::kInline || kind.lists.kind == Lists::kRepeated)
      add({{"layers", Type::kLayers, "layer", "!", "the layers in order"}, own});
    if (kind.lists.kind == Lists::kIndexed) add({{"layers", Type::kLayerLists, "layer", "!", "lists of layers"}, own});
    if (kind.lists.kind == Lists::kNamed)
      for (const Key& key : kind.lists.keys) add({{key.name, Type::kLayers, "layer", key.standard, key.doc}, own});
  }

  std::deque<KeySpec> keys_;
  std::map<std::pair<std::string_view, std::string_view>, KeySpec*> index_;
  std::optional<uint64_t> added_;  // detail::added_names() at the last update
  size_t kinds_ = 0, losses_ = 0, metrics_ = 0, formats_ = 0, schemes_ = 0,
         transforms_ = 0;  // numbers of list items added so far
};

std::mutex g_keys_mutex;
Keys& keys() {
  static Keys all;
  all.update();
  return all;
}

// Groups in which the value of one key determines which others exist.
struct Selector {
  std::string_view group, key;
  bool merged = false;  // the key may be inherited, so it is known only after merging
};
constexpr Selector kSelectors[] = {
    {"dataset", "format"},      {"optim", "name"},           {"aux", "name"},
    {"schedule", "name"},       {"weights", "scheme", true}, {"activations", "scheme", true},
    {"observer", "name", true}, {"device", "kind", true}};

}  // namespace

bool KeySpec::applies(std::string_view selected) const {
  if (when.empty()) return true;
  const std::vector<std::string> values = split(when, ',');
  return std::find(values.begin(), values.end(), selected) != values.end();
}

bool KeySpec::required_with(std::string_view selected) const {
  if (!required() || when.empty()) return required();
  const std::vector<std::string> values = split(optional, ',');
  return applies(selected) && std::find(values.begin(), values.end(), selected) == values.end();
}

std::string KeySpec::with(std::string_view separator) const { return joined(split(when, ','), separator); }

std::vector<const KeySpec*> all_keys() {
  const std::lock_guard lock(g_keys_mutex);
  std::vector<const KeySpec*> all;
  for (const KeySpec& key : keys().all()) all.push_back(&key);
  return all;
}
std::vector<const KeySpec*> keys_in(std::string_view group) {
  std::vector<const KeySpec*> keys = all_keys();
  std::erase_if(keys, [&](const KeySpec* key) { return key->group != group; });
  return keys;
}

constexpr std::string_view kKindPrefix = "layer.", kLossPrefix = "loss.", kMetricPrefix = "metrics.";
std::string group_of_kind(std::string_view kind) { return concat(kKindPrefix, kind); }
std::string_view shown_group(std::string_view group) {
  for (const std::string_view prefix : {kKindPrefix, kLossPrefix, kMetricPrefix})
    if (group.starts_with(prefix)) return group.substr(prefix.size());
  return group;
}

const KeySpec* find_key(std::string_view group, std::string_view key) {
  const std::lock_guard lock(g_keys_mutex);
  return keys().find(group, key);
}

std::vector<std::string> keys_of(std::string_view group) {
  std::vector<std::string> keys;
  for (const KeySpec* spec : keys_in(group)) keys.push_back(spec->name);
  return keys;
}

std::string_view selector_of(std::string_view group, bool merged) {
  for (const Selector& selector : kSelectors)
    if (selector.group == group && (merged || !selector.merged)) return selector.key;
  return {};
}

namespace {

Value read_default(const KeySpec& spec) {
  if (!spec.has_default() || !use_of(spec.type).read) return {};
  const SourceText text(spec.standard, 0);
  Report report("default", text);
  Node node;
  Value value;
  ensure(read_yaml(text, report, node), "config", "bad default '", spec.standard, '\'');
  const std::string wrong = use_of(spec.type).read(spec, node, value);
  ensure(wrong.empty(), "config", "default of ", spec.group, '.', spec.name, ": ", wrong);
  return value;
}

}  // namespace

const Value& default_value(const KeySpec& spec) {
  static std::map<const KeySpec*, Value> defaults;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto found = defaults.find(&spec);
  return found != defaults.end() ? found->second : defaults.emplace(&spec, read_default(spec)).first->second;
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;
  if (word.size() > kLongest) return {};
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : names) {
    const int distance = edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator, begin)) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string path_of(std::string_view group_path, std::string_view key) {
  return group_path.empty() ? std::string(key) : concat(group_path, '.', key);
}

}  // namespace bitgrad::config
