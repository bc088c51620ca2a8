#include "train/config/bind.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "train/config/choices.h"
#include "train/config/fields.h"
#include "train/config/merge.h"
#include "train/config/numbers.h"
#include "train/config/quantizer.h"

namespace bitgrad::config {
namespace {

// The rows of a table are no sums, so their spread does not follow its size (as torch.nn.Embedding).
const InitConfig kTableInit{"normal", 0, 1};

// Reads the keys of one map; nullptr: all defaults.
class Reader {
 public:
  Reader(std::string_view group, const Node* map) : group_(group), map_(map) {}
  void operator()(std::string_view key, BopConfig& field) const {
    visit_bop(Reader("bop", map_ ? map_->child(key) : nullptr), field);
  }
  template <typename T>
  void operator()(std::string_view key, T& field) const {
    const KeySpec* spec = find_key(group_, key);
    ensure(spec != nullptr, "config", "no key ", group_, '.', key);
    if (const Node* node = map_ ? map_->child(key) : nullptr)
      assign(field, node->value);
    else if (spec->has_default())
      assign(field, default_value(*spec));
  }

 private:
  std::string_view group_;
  const Node* map_;
};

const Node* child(const Node* map, std::string_view key) { return map ? map->child(key) : nullptr; }

void bind_dataset(const Node* map, std::string split, DatasetConfig& out) {
  out.split = std::move(split);
  if (!map) return;
  out.mark = map->mark;
  visit_dataset(Reader("dataset", map), out);
  // Keys of other formats keep the field's own defaults, so that configs compare equal by what they say.
  const DatasetConfig plain;
  const auto used = [&](std::string_view key) { return find_key("dataset", key)->applies(out.format); };
  if (!used("split")) out.split.clear();
  if (!used("size")) out.seed = plain.seed, out.size = plain.size;
  if (!used("file")) out.file = plain.file, out.context = plain.context, out.test_fraction = plain.test_fraction;
}

void bind_products(const Node* own, const Node* base, const std::string& path, std::string& compute,
                   BackwardConfig& backward, Report& report) {
  const Merged keys(own, base, path, "quant", report);
  keys.set(compute, "compute");
  visit_backward([inner = keys.inner("backward", "backward")](auto key, auto& field) { inner.set(field, key); },
                 backward);
}

LayerConfig bind_layer(const Entry& entry, const std::string& path, const Node* quant, const std::string& moments,
                       Report& report) {
  LayerConfig layer;
  layer.kind = entry.key;
  layer.mark = entry.key_mark;
  const std::string here = concat(path, '.', layer.kind);
  visit_layer(Reader(layer.kind, &entry.node), layer);
  const auto base = [&](std::string_view key) { return child(quant, key); };
  if (layer.kind == "quantize" && sound(quant, "activations"))
    layer.quant = resolve_quantizer(
        {&entry.node, base("activations"), here, entry.key_mark, Role::kActivations, moments}, report);
  if (layer.kind == "quantize_gradient")
    layer.quant = resolve_quantizer({&entry.node, nullptr, here, entry.key_mark, Role::kGradients, moments}, report);
  if (!choices::has_weights(layer)) return layer;
  if (const Node* out = entry.node.child("out")) layer.out_mark = out->mark;
  if (sound(quant, "weights")) {
    const Entry* own = entry.node.find("weights");
    layer.quant = resolve_quantizer({own ? &own->node : nullptr, base("weights"), concat(here, ".weights"),
                                     own ? own->key_mark : entry.key_mark, Role::kWeights, moments},
                                    report);
    const bool given = (own && own->node.child("init")) || child(base("weights"), "init");
    if (layer.kind == "embedding" && !given) layer.quant.init = kTableInit;
  }
  if (layer.kind != "linear") return layer;
  bind_products(&entry.node, quant, here, layer.compute, layer.backward, report);
  return layer;
}

void bind_layers(const Node& root, RunConfig& config, Report& report) {
  const Node* layers = child(root.child("model"), "layers");
  if (!layers || !sound(&root, "quant")) return;
  for (size_t i = 0; i < layers->items.size(); ++i) {
    const Node& item = layers->items[i];
    if (!item.bad && item.suspects.empty() && !item.entries.empty())
      config.layers.push_back(
          bind_layer(item.entries[0], concat("model.layers.", i), root.child("quant"), config.optim.moments, report));
  }
}

void bind_quant(const Node& root, RunConfig& config, Report& report) {
  const Node* quant = root.child("quant");
  if (!sound(&root, "quant") && !quant) return;
  const auto given = [&](std::string_view key) {
    const Entry* entry = quant ? quant->find(key) : nullptr;
    return entry && !entry->node.bad ? entry : nullptr;
  };
  const std::string& moments = config.optim.moments;
  config.quant.weights.moments = moments;
  if (const Entry* weights = given("weights"))
    config.quant.weights = resolve_quantizer(
        {&weights->node, nullptr, "quant.weights", weights->key_mark, Role::kWeights, moments}, report);
  if (const Entry* activations = given("activations"))
    config.quant.activations = resolve_quantizer(
        {&activations->node, nullptr, "quant.activations", activations->key_mark, Role::kActivations, moments}, report);
  bind_products(quant, nullptr, "quant", config.quant.compute, config.quant.backward, report);
  Reader("quant", quant)("requantize_every", config.quant.requantize_every);
}

std::string absolute_text(const std::filesystem::path& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// data.root, else $BITGRAD_DATA, else the config's folder. A relative root starts at the config's folder, on the
// command line at the current one.
std::string data_root(const Node* data, const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  const Node* node = child(data, "root");
  if (node && std::holds_alternative<std::string>(node->value)) {
    const std::filesystem::path root = std::get<std::string>(node->value);
    return absolute_text(node->mark.argument > 0 ? root : folder / root);
  }
  const char* environment = std::getenv("BITGRAD_DATA");
  if (environment && *environment) return absolute_text(environment);
  return absolute_text(folder.empty() ? "." : folder);
}

std::string name_of_file(const std::string& name) {
  std::string stem = std::filesystem::path(name).stem().string().substr(0, 64);
  for (char& c : stem)
    if (!is_name(std::string(1, c)) && c != '.' && c != '-') c = '_';
  return is_name(stem) ? stem : "run";
}

}  // namespace

RunConfig bind(const Node& root, const std::string& name, Report& report) {
  RunConfig config;
  config.run.name = name_of_file(name);
  Reader top("", &root);
  const Node* from = child(root.child("model"), "init_from");
  if (from) config.init_from_mark = from->mark;
  Reader("model", root.child("model"))("init_from", config.init_from);
  top("version", config.version);
  top("loss", config.loss);
  visit_run(Reader("run", root.child("run")), config.run);
  visit_device(Reader("device", root.child("device")), config.device);
  const Node* data = root.child("data");
  bind_dataset(child(data, "train"), "train", config.data.train);
  if (const Node* test = child(data, "test")) bind_dataset(test, "test", config.data.test.emplace());
  Reader("data", data)("affine", config.data.affine);
  const auto reads = [](const DatasetConfig& c) { return !c.images.empty() || !c.file.empty(); };
  if (reads(config.data.train) || (config.data.test && reads(*config.data.test)))
    config.data.root = data_root(data, name);
  visit_batch(Reader("batch", root.child("batch")), config.batch);
  if (!child(root.child("batch"), "micro")) config.batch.micro = config.batch.global;
  config.quant.requantize_every = config.batch.micro > 0 ? std::max<int64_t>(1, config.batch.accumulate()) : 1;
  visit_optim(Reader("optim", root.child("optim")), config.optim);
  bind_quant(root, config, report);
  bind_prepare(root, config, report);
  bind_layers(root, config, report);
  visit_schedule(Reader("schedule", root.child("schedule")), config.schedule);
  const Node* train = root.child("train");
  Reader("train", train)("stop", config.train.stop);
  config.train.eval.batch = config.batch.micro;
  visit_eval(Reader("eval", child(train, "eval")), config.train.eval);
  Reader("checkpoint", root.child("checkpoint"))("every", config.checkpoint_every);
  visit_log(Reader("log", root.child("log")), config);
  check_contradictions(root, config, report);
  return config;
}

}  // namespace bitgrad::config
