// recipe, first, last, rules, phases and budget of quant: how prepare quantizes the layers, and when.
#include <algorithm>

#include "bitgrad/base/text.h"
#include "bitgrad/nn/prepare.h"
#include "config/bind.h"
#include "config/choices.h"
#include "config/merge.h"

namespace bitgrad::config {
namespace {

constexpr std::string_view kPrepareKeys[] = {"recipe", "first", "last", "rules"};

bool has_groups(const std::string& recipe) {
  const LayerQuant quant = find_recipe(recipe);
  return quant.weight && quant.weight->granularity.kind == Granularity::kGroup;
}

class RuleReader {
 public:
  RuleReader(const Node& map, std::string path, Report& report)
      : map_(map), path_(std::move(path)), keys_(&map, nullptr, path_, "rule", report), report_(report) {}

  QuantRuleConfig read() const {
    QuantRuleConfig rule;
    const Reader reader("rule", &map_);
    reader("layers", rule.layers);
    if (const Node* layers = map_.child("layers")) rule.mark = layers->mark;
    LayerQuantConfig& quant = rule.quant;
    reader("recipe", quant.recipe);
    reader("group", quant.group);
    reader("compute", quant.compute);
    reader("output_rounding", quant.output_rounding);
    if (const auto keys = part("weights", Role::kWeights)) quant.weights = resolve_weights(*keys, report_);
    if (const auto keys = part("activations", Role::kActivations))
      quant.activations = resolve_activations(*keys, report_);
    check(quant);
    return rule;
  }

 private:
  std::optional<QuantizerKeys> part(std::string_view key, Role role) const {
    const Entry* entry = map_.find(key);
    if (!entry) return std::nullopt;
    return QuantizerKeys{&entry->node, nullptr, concat(path_, '.', key), entry->key_mark, role};
  }

  void check(const LayerQuantConfig& quant) const {
    if (!map_.child("recipe") && !map_.child("weights") && !map_.child("activations"))
      return report_.error(map_.mark,
                           concat(path_, ": sets nothing for its layers; expected recipe, weights or activations",
                                  " (a rule does not inherit quant.recipe)"));
    if (quant.group && quant.weights)
      keys_.contradiction({"group"},
                          "group belongs to the recipe, but weights replaces it; set granularity "
                          "there, such as granularity: group(64)");
    else if (quant.group && !has_groups(quant.recipe))
      keys_.contradiction({"group", "recipe"}, concat("group requires a recipe with groups (", joined(grouped()),
                                                      "), the recipe is ", quant.recipe));
    check_rounding(quant);
    const Merged weights = keys_.inner("weights", "weights");
    for (const std::string& key : keys_of("weights"))
      if (!choices::for_rule(key))
        weights.contradiction({key}, concat(key,
                                            " belongs to the layer; set it in the layer's weights or in "
                                            "quant.weights"));
    check_learned(quant);
  }
  static std::vector<std::string> grouped() {
    std::vector<std::string> names = recipe_names();
    std::erase_if(names, [](const std::string& name) { return !has_groups(name); });
    return names;
  }
  void check_rounding(const LayerQuantConfig& quant) const {
    if (!quant.output_rounding) return;
    if (*quant.output_rounding == OutputRounding::kRuy)
      return keys_.contradiction({"output_rounding"},
                                 "output_rounding: ruy, that of LiteRT's kernels without XNNPACK, is for tests alone. "
                                 "Use double, single or float");
    if (quant.compute.value_or(find_recipe(quant.recipe).compute) != Compute::kInteger)
      keys_.contradiction({"output_rounding", "compute"},
                          "output_rounding is of compute: integer, such as recipe int8 has");
  }
  // A layer has a single learning rate for its learned parts (LayerQuant).
  void check_learned(const LayerQuantConfig& quant) const {
    if (!quant.weights || !quant.activations || !choices::has_learned_parts(quant.weights->quant) ||
        !choices::has_learned_parts(quant.activations->spec) || quant.weights->learned == quant.activations->learned)
      return;
    const std::string message = "learned of weights and of activations must be the same in one layer";
    const Merged activations = keys_.inner("activations", "activations");
    if (activations.own("learned"))
      activations.contradiction({"learned"}, message);
    else
      keys_.inner("weights", "weights").contradiction({"learned"}, message);
  }

  const Node& map_;
  const std::string path_;
  const Merged keys_;
  Report& report_;
};

// Reads these keys of quant or of a phase; nullopt if none is set.
std::optional<PrepareConfig> read_prepare(std::string_view group, const Node& map, const std::string& path,
                                          Report& report) {
  const auto given = std::find_if(std::begin(kPrepareKeys), std::end(kPrepareKeys),
                                  [&](std::string_view key) { return map.child(key) != nullptr; });
  if (given == std::end(kPrepareKeys)) return std::nullopt;
  PrepareConfig prepare;
  prepare.mark = map.child(*given)->mark;
  const Reader reader(group, &map);
  reader("recipe", prepare.recipe);
  reader("first", prepare.first);
  reader("last", prepare.last);
  const Node* rules = map.child("rules");
  for (size_t i = 0; rules && i < rules->items.size(); ++i)
    if (!rules->items[i].bad)
      prepare.rules.push_back(RuleReader(rules->items[i], concat(path, ".rules.", i), report).read());
  return prepare;
}

QuantPhaseConfig read_phase(const Node& map, const std::string& path, Report& report) {
  QuantPhaseConfig phase;
  Reader::read_section(&map, phase);
  if (const Node* const from = map.child("from")) phase.mark = from->mark;
  phase.prepare = read_prepare("phase", map, path, report);
  return phase;
}

// Lengths in different units can only be compared when the size of the data is known.
void check_order(const std::vector<QuantPhaseConfig>& phases, Report& report) {
  const auto error = [&](const QuantPhaseConfig& phase, size_t i, const std::string& message) {
    report.error(phase.mark, concat("quant.phases.", i, ".from", message), concat(phase.from).size());
  };
  for (size_t i = 0; i < phases.size(); ++i) {
    const Quantity& from = phases[i].from;
    if ((from.value == 0) != (i == 0))
      return error(
          phases[i], i,
          concat(" (", from, i == 0 ? "): the first phase starts at 0 steps" : "): only the first phase starts at 0"));
    for (size_t before = i; before-- > 0;) {
      const Quantity& other = phases[before].from;
      if (other.unit != from.unit || other.value < from.value) continue;
      const bool blame_other = nearness(phases[before].mark) > nearness(phases[i].mark);
      return error(blame_other ? phases[before] : phases[i], blame_other ? before : i,
                   concat(" (", blame_other ? other : from, ") is not ", blame_other ? "before" : "after",
                          " quant.phases.", blame_other ? i : before, ".from (", blame_other ? from : other, ')'));
    }
  }
}

// `prepared`: quant itself sets recipe, first, last or rules.
void bind_phases(const Node& quant, bool prepared, std::vector<QuantPhaseConfig>& phases, Report& report) {
  const Node* list = quant.child("phases");
  if (!list) return;
  for (size_t i = 0; i < list->items.size(); ++i)
    if (!list->items[i].bad) phases.push_back(read_phase(list->items[i], concat("quant.phases.", i), report));
  if (!sound(&quant, "phases")) return;
  check_order(phases, report);
  if (prepared && phases[0].prepare)
    report.error(phases[0].prepare->mark,
                 "quant.phases.0 sets recipe, first, last or rules, so those of quant never apply; set them "
                 "in one of the two places");
}

void check_budget(const Node& root, const Node& quant, Compute compute, Report& report) {
  const Node& budget = *quant.child("budget");
  for (const std::string_view key : {"recipe", "first", "last", "rules", "phases", "compute"}) {
    const Entry* other = quant.find(key);
    if (!other || (key == "compute" && compute == Compute::kPacked)) continue;
    const SourceMark mark = blame({budget.mark, other->key_mark});
    return report.error(mark,
                        concat("quant.budget selects the recipe of each layer, so quant.", key, " cannot be set too"),
                        mark.argument == other->key_mark.argument && mark.argument > 0 ? key.size() : budget.length());
  }
  const Node* model = root.child("model");
  if (sound(&root, "model") && sound(model, "init_from") && !(model && model->child("init_from")))
    report.error(budget.mark,
                 "quant.budget needs model.init_from: bits are selected by their effect on a trained model",
                 budget.length());
}

}  // namespace

void bind_prepare(const Node& root, RunConfig& config, Report& report) {
  const Node* quant = root.child("quant");
  if (!quant || quant->bad) return;
  const std::optional<PrepareConfig> prepare = read_prepare("quant", *quant, "quant", report);
  if (prepare) config.quant.prepare = *prepare;
  bind_phases(*quant, prepare.has_value(), config.quant.phases, report);
  const Node* budget = quant->child("budget");
  if (!budget || !sound(quant, "budget")) return;
  if (budget->child("bytes") && !budget->child("bytes")->bad)
    check_budget(root, *quant, config.quant.product.compute, report);
}

}  // namespace bitgrad::config
