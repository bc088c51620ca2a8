#include "config/bind.h"

#include <algorithm>
#include <string>

#include "bitgrad/nn/layers.h"
#include "config/choices.h"
#include "config/model_forms.h"
#include "config/steps.h"

namespace bitgrad::config {
namespace {

class Effects {
 public:
  Effects(const Node& root, const RunConfig& config, const ModelForms& forms, Report& report)
      : root_(root), config_(config), forms_(forms), report_(report) {}

  void run() const {
    if (!report_.of_user()) return;
    activations();
    weights();
    requantize();
    device();
    names();
    decay();
    schedule("schedule", config_.schedule);
    schedule("optim.decay_schedule", config_.optim.decay_schedule);
    schedule("optim.momentum_schedule", config_.optim.momentum_schedule);
    norm_statistics();
  }

 private:
  const Entry* find(std::string_view group, std::string_view key) const {
    const Node* const map = node_at(root_, group);
    return map != nullptr ? map->find(key) : nullptr;
  }
  // An override changes the value, but the key's mark is still that of the file.
  static SourceMark mark_of(const Entry& entry) {
    return entry.node.mark.argument > 0 ? entry.node.mark : entry.key_mark;
  }
  void warn(const Entry* entry, const std::string& message) const {
    if (entry != nullptr) report_.warning(mark_of(*entry), message);
  }
  // Where no other key gives the value an effect.
  void refuse(const Entry* entry, const std::string& message) const {
    if (entry != nullptr) report_.error(mark_of(*entry), message, entry->node.length());
  }
  bool prepared() const { return config_.quant.prepare != PrepareConfig{} || !config_.quant.phases.empty(); }

  void activations() const {
    const Entry* const entry = find("quant", "activations");
    if (entry == nullptr) return;
    bool used = false;
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      used = used || find_layer_kind(layer.kind)->quantizer == LayerKind::Quantizer::kActivations;
    });
    if (used) return;
    warn(entry,
         concat("quant.activations has no effect, layer inputs are not quantized: the key only applies to quantize "
                "layers, and the model has none. Put quantize: {} before each layer whose input is to be quantized, or "
                "use a recipe that quantizes inputs, such as quant.recipe: w4a4, or rules with activations",
                prepared() ? "; with a recipe or rules, remove quant.activations" : ""));
  }

  // Low-bit weights that recipes replace in every phase. Keys for training still apply.
  void weights() const {
    if (!prepared()) return;
    const Entry* const shared = find("quant", "weights");
    bool used = false;
    for_each_place(config_.layers, [&](const LayerSpec& layer, const std::vector<std::string>& places) {
      if (!choices::has_weights(layer)) return;
      const bool own_keys_count = forms_.by_own_keys(places);
      used = used || own_keys_count;
      const Node* const map = node_at(root_, origin_of(layer).path);
      const Entry* const own = map != nullptr ? map->find("weights") : nullptr;
      if (own_keys_count || own == nullptr || own->node.child("dtype") == nullptr || !layer.weight.quant) return;
      warn(own, concat(origin_of(layer).path, ".weights (", layer.weight.quant->dtype, ") has no effect: ", holder(),
                       " this layer. Set its weights in a rule of quant.rules"));
    });
    if (!used && shared != nullptr && config_.quant.weights.quant)
      warn(shared,
           concat(
               "quant.weights (", config_.quant.weights.quant->dtype, ' ', config_.quant.weights.quant->scheme,
               ") has no effect: ", holder(),
               " every layer. Leave out one of the two; keys of training, such as init, still count beside a recipe"));
  }
  std::string holder() const {
    const auto& recipe = config_.quant.prepare.recipe;
    return recipe ? concat("quant.recipe ", *recipe, " says how to quantize") : "recipes or rules say how to quantize";
  }

  void requantize() const {
    const Entry* const entry = find("quant", "requantize_every");
    if (entry == nullptr || prepared() || config_.quant.budget ||
        config_.quant.requantize_every == config_.batch.accumulate())
      return;
    bool low_bit = false;
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      low_bit = low_bit || (choices::has_weights(layer) && layer.weight.quant);
    });
    if (!low_bit) warn(entry, "quant.requantize_every has no effect: no layer has low-bit weights");
  }

  void device() const {
    if (config_.device.kind != "cpu") return;
    const DeviceSection standard;
    const auto idle = [&](std::string_view key, bool given) {
      if (given) warn(find("device", key), concat("device.", key, " has no effect with device.kind cpu"));
    };
    idle("index", config_.device.index != standard.index);
    idle("graph", config_.device.graph != standard.graph);
    idle("resident_data", config_.device.resident_data != standard.resident_data);
  }

  void names() const {
    if (!config_.init_from.empty()) return;
    for (const char* key : {"rename", "ignore", "other_inputs"})
      warn(find("model", key), concat("model.", key,
                                      " has no effect: it is for the file of model.init_from, which is "
                                      "not set"));
  }

  void decay() const {
    const OptimizerSpec& optim = config_.optim.spec;
    if (optim.decay_vectors || optim.weight_decay != 0) return;
    bool decays = !optim.aux.empty() && optim.aux[0].weight_decay != 0;
    for_each_layer(config_.layers,
                   [&](const LayerSpec& layer) { decays = decays || layer.weight.weight_decay.value_or(0) != 0; });
    if (!decays) warn(find("optim", "decay"), concat("optim.decay (matrices) has no effect: optim.weight_decay is 0"));
  }

  // A fall of the rate by nothing.
  void schedule(const std::string& path, const ScheduleConfig& c) const {
    const auto idle = [&](std::string_view key, bool is) {
      if (is)
        refuse(find(path, key), concat(path, '.', key, ": 1 changes nothing, ", c.name,
                                       " keeps the rate constant. Give a number below 1, or name: constant"));
    };
    idle("factor", c.factor == 1);
    idle("gamma", c.gamma == 1);
    idle("final", c.final == 1);
    idle("warmup_from", c.warmup_from == 1);
    if (!c.factors.empty() && std::all_of(c.factors.begin(), c.factors.end(), [](double f) { return f == 1; }))
      refuse(find(path, "factors"),
             concat(path, ".factors: 1 alone changes nothing. Give other numbers, or name: constant"));
  }

  // Kinds of a plugin may have statistics of which nothing is known here.
  void norm_statistics() const {
    bool held = !config_.plugins.empty();
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      const std::vector<Key>& keys = find_layer_kind(layer.kind)->keys;
      held = held || std::any_of(keys.begin(), keys.end(), [](const Key& key) { return key.name == "momentum"; });
    });
    for (size_t i = 0; i < config_.quant.phases.size() && !held; ++i)
      if (!config_.quant.phases[i].mode.norm_statistics)
        refuse(find(concat("quant.phases.", i), "norm_statistics"),
               concat("quant.phases.", i,
                      ".norm_statistics: false fixes the running statistics of batch_norm and "
                      "tensor_norm, and the model has none of them. Leave it out"));
  }

  const Node& root_;
  const RunConfig& config_;
  const ModelForms& forms_;
  Report& report_;
};

}  // namespace

void check_effects(const Node& root, const RunConfig& config, const ModelForms& forms, Report& report) {
  Effects(root, config, forms, report).run();
}

}  // namespace bitgrad::config
