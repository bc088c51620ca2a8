// The model after its adapters were merged into its weights.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/run/adapters.h"
#include "bitgrad/tools/ptq.h"
#include "config/specs.h"

namespace bitgrad {

// Drops the adapters. With to_float, appends a rule per adapted layer that keeps its input quantization.
RunConfig merged_config(RunConfig config, Module& model, bool to_float) {
  const PrepareSpec spec = config::prepare_spec(config.quant.prepare);
  std::map<std::string, LayerChoice> choices;
  for (LayerChoice& c : choose_layers(model, spec)) choices[c.layer] = std::move(c);
  config.adapters.reset();
  if (!to_float) return config;
  for (const AdaptedLayer& l : adapted_layers(model)) {
    const std::optional<LayerQuant>& quant = choices.at(l.layer).quant;
    QuantRuleConfig& rule = config.quant.prepare.rules.emplace_back();
    rule.layers = l.layer;
    rule.quant.recipe = quant && quant->recipe != "custom" ? quant->recipe : "none";
    rule.quant.weights.emplace();
    if (quant && quant->input && quant->recipe == "custom") {
      rule.quant.activations = config::plain_activations(*quant->input, quant->input_grad);
      if (quant->observer) rule.quant.activations->observer = ObserverSpec{.name = quant->observer->name};
    }
  }
  return config;
}

MergedFile write_merged(const std::string& path, const OpenedFile& file, Learner& learner, bool to_float) {
  require(file.kind == "checkpoint", "merge", file.path, " is converted: merge the checkpoint that it was made of");
  require(path != file.path, "merge", path, ": is the file that the model was opened from. Name another one");
  const std::vector<AdaptedLayer> layers = adapted_layers(learner.model());
  const auto low_bit = [](const AdaptedLayer& l) { return l.slot->weight().low_bit(); };
  MergedFile merged{std::ssize(layers), !to_float && std::any_of(layers.begin(), layers.end(), low_bit)};
  RunConfig config = file.config;
  if (file.of_run) config = merged_config(converted_config(config, learner), learner.model(), to_float);
  merge_adapters(learner.model(), to_float);
  learner.convert();
  if (file.of_run)
    save_converted(path, learner, file.header, config);
  else
    save_converted(path, learner, file.header);
  return merged;
}

}  // namespace bitgrad
