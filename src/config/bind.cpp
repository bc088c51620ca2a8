#include "config/bind.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/transform.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/optim/update_rule.h"
#include "bitgrad/task/loss.h"
#include "bitgrad/task/metric.h"
#include "config/choices.h"
#include "config/fields.h"
#include "config/merge.h"
#include "config/texts.h"
#include "nn/expanded_layers.h"

namespace bitgrad::config {
namespace {

// Rows of a table are not summed, so their spread does not depend on its size (as torch.nn.Embedding).
const Init kTableInit{"normal", 0, 1};

// Reads the values of keys that are described as data.
void read_own_keys(std::string_view group, const std::vector<Key>& keys, const Node* map, Attributes& out) {
  for (const Key& key : keys)
    if (const auto value = attribute_of(value_of(group, key.name, child(map, key.name)))) out[key.name] = *value;
}

void bind_loss(const Node& root, RunConfig& config) {
  const Node* const node = root.child("loss");
  const bool map = node != nullptr && node->kind == Node::Kind::kMap;
  if (!map) Reader("", &root)("loss", config.loss);
  if (map && !node->entries.empty()) config.loss = node->entries[0].key;
  const LossKind* const kind = node != nullptr && node->bad ? nullptr : find_loss_kind(config.loss);
  if (kind == nullptr) return;
  read_own_keys(group_of_named("loss", kind->name), kind->keys, map ? &node->entries[0].node : nullptr,
                config.loss_keys);
}

void bind_metrics(const Node* train, TrainSection& out) {
  const Node* const metrics = child(train, "metrics");
  if (metrics == nullptr || metrics->bad) return;
  for (const Entry& entry : metrics->entries)
    if (const Metric* const metric = find_metric(entry.key))
      read_own_keys(group_of_named("metrics", metric->name), metric->keys, &entry.node, out.metrics[metric->name]);
}

void bind_model(const Node* model, RunConfig& out) {
  const Reader read("model", model);
  if (const Node* const from = child(model, "init_from")) out.init_from_mark = from->mark;
  read("init_from", out.init_from);
  read("values", out.values);
  read("flat", out.flat);
  read("ignore", out.ignore);
  read("other_inputs", out.other_inputs);
  const Value rename = value_of("model", "rename", child(model, "rename"));
  if (const auto* const words = std::get_if<std::vector<std::string>>(&rename))
    for (size_t i = 0; i + 1 < words->size(); i += 2)
      out.rename.push_back(parse_weight_name((*words)[i], (*words)[i + 1]));
}

void bind_products(const Node* own, const Node* base, const std::string& path, ProductSpec& product, Report& report) {
  const Merged keys(own, base, path, "quant", report);
  keys.set(product.compute, "compute");
  visit([inner = keys.inner("backward", "backward")](auto key, auto& field) { inner.set(field, key); }, product);
}

// Reads the layers of a model, and of the containers within it.
class LayerReader {
 public:
  LayerReader(const Node* quant, Report& report) : quant_(quant), report_(report) {}

  std::vector<LayerSpec> read_list(const Node& list, const std::string& path) {
    std::vector<LayerSpec> layers;
    for (size_t i = 0; i < list.items.size(); ++i) {
      const Node& item = list.items[i];
      if (item.bad || !item.suspects.empty() || item.entries.empty()) continue;
      const Report::Within block(report_, item.block);
      const std::string outer = std::exchange(block_, std::string(item.block.empty() ? block_ : item.block));
      layers.push_back(read(item.entries[0], concat(path, '.', i)));
      block_ = outer;
    }
    return layers;
  }

 private:
  LayerSpec read(const Entry& entry, const std::string& path) {
    const LayerKind& kind = *find_layer_kind(entry.key);
    LayerSpec layer;
    layer.kind = entry.key;
    LayerOrigin origin{entry.key_mark, {}, concat(path, '.', layer.kind), block_};
    for (const Key& key : kind.keys)
      if (const Node* const node = entry.node.child(key.name)) origin.marks[key.name] = node->mark;
    layer.origin = std::make_shared<const LayerOrigin>(std::move(origin));
    read_own_keys(group_of_kind(kind.name), kind.keys, &entry.node, layer.attributes);
    read_lists(kind, entry.node, layer);
    const std::string& own = layer.origin->path;
    if (kind.quantizer == LayerKind::Quantizer::kActivations && sound(quant_, "activations"))
      layer.activation = resolve_activations(
          {&entry.node, child(quant_, "activations"), own, entry.key_mark, Role::kActivations}, report_);
    if (kind.quantizer == LayerKind::Quantizer::kGradients)
      layer.activation = resolve_activations({&entry.node, nullptr, own, entry.key_mark, Role::kGradients}, report_);
    if (kind.weights && sound(quant_, "weights")) read_weights(kind, entry, layer);
    if (kind.product) bind_products(&entry.node, quant_, own, layer.product, report_);
    return layer;
  }

  void read_lists(const LayerKind& kind, const Node& map, LayerSpec& layer) {
    using Lists = LayerLists::Kind;
    const auto add = [&](const std::string& key, const Node& list, const std::string& path) {
      layer.lists.push_back({key, read_list(list, path)});
    };
    if (kind.lists.kind == Lists::kNamed) {
      for (const Key& key : kind.lists.keys)
        if (const Node* list = map.child(key.name)) add(key.name, *list, concat(layer.origin->path, '.', key.name));
      return;
    }
    const Node* const lists = map.child("layers");
    if (kind.lists.kind == Lists::kNone || lists == nullptr) return;
    const std::string path = layer.origin->path + ".layers";
    if (kind.lists.kind != Lists::kIndexed) return add("layers", *lists, path);
    for (size_t i = 0; i < lists->items.size(); ++i) add(std::to_string(i), lists->items[i], concat(path, '.', i));
  }

  void read_weights(const LayerKind& kind, const Entry& entry, LayerSpec& layer) {
    const Entry* own = entry.node.find("weights");
    const Node* const base = child(quant_, "weights");
    layer.weight = resolve_weights({own ? &own->node : nullptr, base, concat(layer.origin->path, ".weights"),
                                    own ? own->key_mark : entry.key_mark, Role::kWeights},
                                   report_);
    const bool given = (own && own->node.child("init")) || child(base, "init");
    if (kind.ids && !given) layer.weight.init = kTableInit;
  }

  const Node* quant_;
  Report& report_;
  std::string block_;  // block that the layers being read come from
};

// The numbers that follow from the rule, or from those of optim.
void bind_optim(const Node* optim, OptimizerSpec& spec) {
  fill_defaults(spec);
  if (spec.aux.empty()) return;
  OptimizerSpec& aux = spec.aux[0];
  fill_defaults(aux);
  const Node* const map = child(optim, "aux");
  if (child(map, "lr") == nullptr) aux.base_lr = spec.base_lr;
  if (child(map, "weight_decay") == nullptr) aux.weight_decay = spec.weight_decay;
  if (child(map, "decay") == nullptr) aux.decay_vectors = spec.decay_vectors;
  if (child(map, "moments") == nullptr) aux.moments = spec.moments;
}

void bind_layers(const Node& root, RunConfig& config, Report& report) {
  const Node* layers = child(root.child("model"), "layers");
  if (!layers || !sound(&root, "quant")) return;
  config.layers = LayerReader(root.child("quant"), report).read_list(*layers, "model.layers");
}

void bind_quant(const Node& root, RunConfig& config, Report& report) {
  const Node* quant = root.child("quant");
  if (!sound(&root, "quant") && !quant) return;
  const auto given = [&](std::string_view key) {
    const Entry* entry = quant ? quant->find(key) : nullptr;
    return entry && !entry->node.bad ? entry : nullptr;
  };
  config.quant.weights.init.name = "glorot_uniform";
  if (const Entry* weights = given("weights"))
    config.quant.weights =
        resolve_weights({&weights->node, nullptr, "quant.weights", weights->key_mark, Role::kWeights}, report);
  if (const Entry* activations = given("activations"))
    config.quant.activations = resolve_activations(
        {&activations->node, nullptr, "quant.activations", activations->key_mark, Role::kActivations}, report);
  bind_products(quant, nullptr, "quant", config.quant.product, report);
}

std::string absolute_text(const std::filesystem::path& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// See ConfigSource. A relative root is relative to the configuration's folder, or on the command line to the current
// folder.
// `file`: one that the run reads, relative to the root.
std::string data_root(const Node* data, const std::string& name, const ConfigSource& source, const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  const Node* node = child(data, "root");
  if (node && !std::holds_alternative<std::string>(node->value)) node = nullptr;
  const char* environment = std::getenv("BITGRAD_DATA");
  const bool set = environment != nullptr && *environment != 0;
  const bool remembered = node != nullptr && source.run && node->mark.argument == 0;
  if (node && !(remembered && set)) {
    const std::filesystem::path root = std::get<std::string>(node->value);
    return absolute_text(node->mark.argument > 0 ? root : folder / root);
  }
  const auto holds = [&](const std::string& root) {
    return file_system().exists((std::filesystem::path(root) / file).string());
  };
  if (set && !source.root.empty() && !file.empty() && !holds(environment) && holds(source.root)) {
    log(LogLevel::kWarning, concat("BITGRAD_DATA = '", printable(environment), "' has no '", printable(file),
                                   "': the folder of the run is read, '", printable(source.root), "'"));
    return source.root;
  }
  if (set) return absolute_text(environment);
  if (!source.root.empty()) return source.root;
  return absolute_text(folder.empty() ? "." : folder);
}

// The first path that a data set names; empty: none.
const std::string& named_path(const DatasetConfig& c) {
  return !c.images.empty() ? c.images : !c.file.empty() ? c.file : c.path;
}
// Not of several by a pattern.
std::string file_of(const DatasetConfig& c) {
  const std::string& path = named_path(c);
  return path.find('*') == std::string::npos ? path : std::string();
}

std::string name_of_file(const std::string& name) {
  std::string stem = std::filesystem::path(name).stem().string().substr(0, 64);
  for (char& c : stem)
    if (!is_name(std::string(1, c)) && c != '.' && c != '-') c = '_';
  return is_name(stem) ? stem : "run";
}

}  // namespace

const Value& value_of(std::string_view group, std::string_view key, const Node* node) {
  const KeySpec* const spec = find_key(group, key);
  ensure(spec != nullptr, "config", "no key ", group, '.', key);
  return node != nullptr ? node->value : default_value(*spec);
}

void Reader::operator()(std::string_view key, DatasetConfig& out) const {
  const Node* const map = child(map_, key);
  out.split = key == "train" ? "train" : "test";
  if (map == nullptr) return;
  read_section(map, out);
  // Keys of other formats keep the field's default, so that configurations compare equal if they say the same.
  const DatasetConfig plain;
#define BITGRAD_DATASET_FIELD(member, ...) \
  if (!find_key("dataset", #member)->applies(out.format)) out.member = plain.member;
#include "bitgrad/data/dataset_fields.inc"
#undef BITGRAD_DATASET_FIELD
  if (!find_key("dataset", "split")->applies(out.format)) out.split.clear();
  if (const DatasetFormat* const format = find_dataset_format(out.format))
    read_own_keys("dataset", format->keys, map, out.keys);
}

void Reader::operator()(std::string_view key, std::vector<TransformConfig>& field) const {
  const Node* const list = child(map_, key);
  for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
    if (list->items[i].bad || list->items[i].entries.empty()) continue;
    const Entry& entry = list->items[i].entries[0];
    const TransformKind* const kind = find_transform(entry.key);
    if (kind == nullptr) continue;
    TransformConfig& out = field.emplace_back();
    out.name = kind->name;
    read_own_keys(group_of_named("transform", kind->name), kind->keys, &entry.node, out.keys);
  }
}

std::optional<Attribute> attribute_of(const Value& value) {
  return std::visit(
      [](const auto& x) -> std::optional<Attribute> {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                      std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<int64_t>> ||
                      std::is_same_v<T, std::vector<double>>)
          return Attribute(x);
        else
          return std::nullopt;
      },
      value);
}

// Before anything goes over the rounds of its repeats.
void bound_layers(const RunConfig& config, Report& report) {
  const std::vector<LayerSpec>* layers = &config.layers;
  if (detail::expanded_layers(*layers) <= detail::kMostLayers) return;
  const LayerSpec* named = &layers->front();
  for (bool found = true; found;) {  // down to the outermost repeat that is too much by itself
    found = false;
    for (const LayerSpec& layer : *layers) {
      if (detail::expanded_layers(std::vector<LayerSpec>{layer}) <= detail::kMostLayers) continue;
      named = &layer;
      const LayerKind* const kind = find_layer_kind(layer.kind);
      found = kind != nullptr && kind->lists.kind != LayerLists::Kind::kRepeated && !layer.lists.empty();
      if (found) layers = &layer.lists.front().layers;
      break;
    }
  }
  const Report::Within block(report, origin_of(*named).block);
  report.error(origin_of(*named).mark, concat(origin_of(*named).path, ": ", detail::too_many_layers()),
               named->kind.size());
  report.throw_if_any();
}

RunConfig bind(const Node& root, const std::string& name, const ConfigSource& source, Report& report) {
  RunConfig config;
  config.run.name = name_of_file(name);
  Reader::read_section(&root, config);
  bind_model(root.child("model"), config);
  bind_loss(root, config);
  bind_optim(root.child("optim"), config.optim.spec);
  const DataSection& data = config.data;
  const auto reads = [](const auto& c) { return c && !named_path(*c).empty(); };
  if (reads(&data.train) || reads(data.valid) || reads(data.test))
    config.data.root = data_root(root.child("data"), name, source, file_of(data.train));
  if (!child(root.child("batch"), "micro")) config.batch.micro = config.batch.global;
  if (!child(root.child("quant"), "requantize_every") && config.batch.micro > 0)
    config.quant.requantize_every = std::max<int64_t>(1, config.batch.accumulate());
  bind_quant(root, config, report);
  bind_prepare(root, config, report);
  bind_layers(root, config, report);
  bound_layers(config, report);
  const Node* const train = root.child("train");
  if (const Node* const frozen = child(train, "frozen")) config.train.frozen_mark = frozen->mark;
  bind_metrics(train, config.train);
  if (!child(child(train, "eval"), "batch")) config.train.eval.batch = config.batch.micro;
  for (const auto check : {check_batch, check_data, check_optim, check_output}) check(root, config, report);
  if (report.empty()) check_plan(root, config, report);
  return config;
}

}  // namespace bitgrad::config
