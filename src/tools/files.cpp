// Configurations and files of models that are quantized after training.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/quant/quantizer.h"
#include "bitgrad/run/adapters.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/ptq.h"

#include "checkpoint/part.h"
#include "config/specs.h"

namespace bitgrad {
namespace {

void without_init_from(RunConfig& config) {
  config.init_from.clear();
  config.rename.clear();
  config.ignore.clear();
  config.other_inputs = false;
}

QuantRuleConfig rule(const std::string& layers, const std::string& recipe) {
  QuantRuleConfig r;
  r.layers = layers;
  r.quant.recipe = recipe;
  return r;
}

// The settings of a layer's weights that do not concern codes.
ParameterSpec float_weights(ParameterSpec weights) {
  weights.quant.reset();
  weights.master = MasterKind::kFp32;
  weights.optimizer.clear();
  weights.learned = {};
  return weights;
}

// Appends a spec as plain rules, so that another spec can follow it.
void append_rules(const PrepareConfig& prepare, const std::string& first, const std::string& last,
                  std::vector<QuantRuleConfig>& rules) {
  if (prepare.recipe) rules.push_back(rule("*", *prepare.recipe));
  if (prepare.first) rules.push_back(rule(first, *prepare.first));
  if (prepare.last) rules.push_back(rule(last, *prepare.last));
  rules.insert(rules.end(), prepare.rules.begin(), prepare.rules.end());
}

// The specs applied up to a phase, in order.
std::vector<PrepareConfig> applied(const QuantSection& quant, int64_t phase) {
  std::vector<PrepareConfig> specs;
  const PrepareConfig none;
  const bool base_is_replaced = !quant.phases.empty() && quant.phases.front().prepare;
  if (!(quant.prepare == none) && !base_is_replaced) specs.push_back(quant.prepare);
  for (int64_t i = 0; i <= phase && i < std::ssize(quant.phases); ++i)
    if (const auto& prepare = quant.phases[static_cast<size_t>(i)].prepare) specs.push_back(*prepare);
  return specs;
}

bool has_range(const LayerQuant& quant) {
  if (!quant.input) return false;
  const Quantizer& quantizer = find_quantizer(quant.input->scheme);
  return quantizer.from_range() && quantizer.learned(*quant.input).empty();
}

void check_reads_back(const std::string& yaml, const std::string& path) {
  try {
    parse_config(yaml, path, {}, {.plugins = ConfigSource::Plugins::kLoaded});
  } catch (const ConfigError& e) {
    fail_with(ErrorCode::kBug, "save_converted", "the model's configuration would not be read back: ", e.what());
  }
}

}  // namespace

RunConfig float_config(RunConfig config) {
  config.quant.weights = float_weights(config.quant.weights);
  config.quant.product = {};
  for_each_layer(config.layers, [](LayerSpec& layer) {
    if (find_layer_kind(layer.kind)->weights) layer.weight = float_weights(layer.weight);
    layer.product = {};
  });
  config.quant.prepare = {};
  config.quant.prepare.recipe = "none";
  config.quant.phases.clear();
  config.quant.budget.reset();
  without_init_from(config);
  return config;
}

std::unique_ptr<Learner> load_floats(const std::string& file, const RunConfig& config, const Dataset& data) {
  const FileForm form = file_form(file);
  std::unique_ptr<Learner> learner = build_evaluator(float_config(config), data, &form);
  checkpoint::take_values(file, learner->model());
  return learner;
}

RunConfig with_observer(RunConfig config, Module& model, const std::string& observer) {
  const std::vector<std::string_view> names = observer_names();
  require(std::find(names.begin(), names.end(), observer) != names.end(), "quantize",
          unknown_name("observer", observer, {names.begin(), names.end()}));
  PrepareConfig prepare = config.quant.prepare;
  bool any = false;
  for (const LayerChoice& c : choose_layers(model, config::prepare_spec(config.quant.prepare))) {
    // The input of an embedding are ids: no rule may ask for its range.
    if (!c.quant || c.slot->kind() == Quantizable::Kind::kEmbedding || !has_range(*c.quant)) continue;
    any = true;
    QuantRuleConfig& r = prepare.rules.emplace_back(rule(c.layer, c.quant->recipe));
    if (c.quant->weight && c.quant->weight->granularity.kind == Granularity::kGroup)
      r.quant.group = c.quant->weight->granularity.group;
    if (c.quant->compute == Compute::kInteger) r.quant.output_rounding = c.quant->output_rounding;
    QuantSpec input = *c.quant->input;
    input.granularity = Granularity::tensor();
    r.quant.activations = config::plain_activations(input, c.quant->input_grad);
    r.quant.activations->observer = ObserverSpec{.name = observer};
  }
  require(any, "quantize", "observer ", observer, ": no layer has an input range to calibrate");
  config.quant.prepare = prepare;
  return config;
}

RunConfig converted_config(RunConfig config, Learner& learner) {
  QuantSection& quant = config.quant;
  const std::vector<PrepareConfig> specs = applied(quant, learner.phase());
  PrepareConfig prepare;
  // A phase's recipe may be combined with quant.compute, but quant.recipe may not.
  const bool as_it_is = specs.size() == 1 && (quant.product.compute == Compute::kPacked || !specs.front().recipe);
  if (as_it_is) prepare = specs.front();
  const std::vector<LayerChoice> layers = choose_layers(learner.model(), {});
  if (!as_it_is)
    for (PrepareConfig spec : specs) {
      // A recipe for all replaces what was before it, and is no rule: it takes what layers share from their owners.
      if (spec.recipe && quant.product.compute == Compute::kPacked) {
        prepare = {};
        prepare.recipe = std::exchange(spec.recipe, std::nullopt);
      }
      append_rules(spec, layers.front().layer, layers.back().layer, prepare.rules);
    }
  QuantPhaseConfig now;
  if (!quant.phases.empty()) now = quant.phases[static_cast<size_t>(learner.phase())];
  quant.prepare = prepare;
  quant.phases.clear();
  quant.budget.reset();
  quant.product.compute =
      Compute::kPacked;  // layers set their own; beside recipes for all layers another value would be rejected
  without_init_from(config);
  config.device.kind = "cpu";  // whoever opens the file chooses the device
  config.device.index = 0;
  if (now.mode.quantization != QuantSwitch::kOff) return config;
  now.from = {};
  now.prepare.reset();
  quant.phases.push_back(now);
  return config;
}

void save_converted(const std::string& path, Learner& learner, CheckpointHeader header, const RunConfig& config) {
  header.config = to_portable_yaml(config);
  check_reads_back(header.config, path);
  save_converted(path, learner, std::move(header));
}

void save_converted(const std::string& path, Learner& learner, CheckpointHeader header) {
  header.phase = 0;
  header.kernel_hash.clear();
  header.model.clear();
  if (const auto record = model_record(learner)) header.model = to_text(*record);
  save_model(path, learner.model(), header);
}

// The model after its adapters were merged into its weights.

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
  require(file.kind == SavedKind::kCheckpoint, "merge", file.path,
          " is converted: merge the checkpoint that it was made of");
  require(path != file.path, "merge", path, ": is the file that the model was opened from. Name another one");
  const std::vector<AdaptedLayer> layers = adapted_layers(learner.model());
  const auto low_bit = [](const AdaptedLayer& l) { return l.slot->weight().low_bit(); };
  MergedFile merged{std::ssize(layers), !to_float && std::any_of(layers.begin(), layers.end(), low_bit)};
  const DeviceGuard guard(learner.device());
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
