#include "config/model_forms.h"

#include <algorithm>
#include <span>

#include "config/choices.h"
#include "config/merge.h"
#include "nn/expanded_layers.h"
#include "nn/glob.h"

namespace bitgrad::config {
namespace {

// Placeholder for the number of features, which is not known yet.
constexpr int64_t kFeatures = 2;

std::string layer_path_of(const std::string& place) { return concat(kModelRoot, '.', place); }

// The mark of the rule that applied (LayerChoice::rule).
SourceMark mark_of(const PrepareConfig& c, const std::string& rule) {
  const auto named =
      std::find_if(c.rules.rbegin(), c.rules.rend(), [&](const QuantRuleConfig& r) { return r.layers == rule; });
  return named == c.rules.rend() ? c.mark : named->mark;
}

bool matches_a_layer(Module& model, const std::string& glob) {
  try {
    bitgrad::detail::check_glob(glob);
  } catch (const Error&) {
    return false;
  }
  const std::vector<Module::QuantizableAt> slots = model.quantizables_at(kModelRoot);
  return std::any_of(slots.begin(), slots.end(),
                     [&](const Module::QuantizableAt& at) { return bitgrad::detail::glob_matches(glob, at.layer); });
}

std::shared_ptr<Sequential> made(const std::vector<LayerSpec>& layers) {
  auto model = make_layers(layers);
  model->connect_all(*model);
  return model;
}

std::vector<LayerSpec> plain(std::vector<LayerSpec> layers) {
  for_each_layer(layers, [](LayerSpec& layer) { layer.product = {}; });
  return layers;
}

void each_place(std::span<const LayerSpec> layers, const std::vector<std::string>& prefixes,
                const std::function<void(const LayerSpec&, const std::vector<std::string>&)>& f) {
  using Lists = LayerLists::Kind;
  const auto below = [](const std::vector<std::string>& places, const std::string& name) {
    std::vector<std::string> out;
    for (const std::string& place : places) out.push_back(place.empty() ? name : concat(place, '.', name));
    return out;
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    const std::vector<std::string> places = below(prefixes, std::to_string(i));
    const Lists form = find_layer_kind(layer.kind)->lists.kind;
    if (form == Lists::kNone) f(layer, places);
    for (const LayerList& list : layer.lists) {
      if (form == Lists::kInline) {
        each_place(list.layers, places, f);
      } else if (form != Lists::kRepeated) {
        each_place(list.layers, below(places, list.key), f);
      } else {
        const int64_t times = layer.attributes.integer("times");
        const int64_t turns =
            bitgrad::detail::takes_turns(layer) ? std::min<int64_t>(times, std::ssize(list.layers)) : 1;
        for (int64_t turn = 0; turn < turns; ++turn) {
          std::vector<std::string> rounds;
          for (int64_t round = turn; round < times; round += turns == 1 ? 1 : std::ssize(list.layers))
            for (std::string& place : below(places, std::to_string(round))) rounds.push_back(std::move(place));
          each_place(bitgrad::detail::layers_of_round(layer, turn), rounds, f);
        }
      }
    }
  }
}

}  // namespace

void for_each_place(const std::vector<LayerSpec>& layers,
                    const std::function<void(const LayerSpec&, const std::vector<std::string>&)>& f) {
  each_place(layers, {""}, f);
}

ModelForms::ModelForms(const RunConfig& config, Report& report)
    : input_(choices::reads_ids(config) ? dtypes::int32 : dtypes::fp32), values_(config.values) {
  for_each_layer(config.layers, [&](const LayerSpec& l) { plans_ = plans_ && !find_layer_kind(l.kind)->axes; });
  std::shared_ptr<Sequential> model;
  try {
    model = made(plain(config.layers));
  } catch (const LayerError& error) {
    const LayerSpec* layer = layer_at(config.layers, error.layer());
    if (layer == nullptr) layer = &config.layers.front();
    const Report::Within block(report, origin_of(*layer).block);
    report.error(origin_of(*layer).mark, concat(origin_of(*layer).path, ": ", library_text(error.message())),
                 layer->kind.size());
    ok_ = false;
    return;
  }
  QuantForm form;
  const QuantSection& quant = config.quant;
  ok_ = choose(quant.prepare, "quant", *model, form.choices, report);
  if (quant.phases.empty()) forms_.push_back(form);
  for (size_t i = 0; i < quant.phases.size(); ++i) {
    const QuantPhaseConfig& phase = quant.phases[i];
    if (phase.prepare && !choose(*phase.prepare, concat("quant.phases.", i), *model, form.choices, report)) ok_ = false;
    form.mode = phase.mode;
    form.mark = phase.mark;
    forms_.push_back(form);
  }
}

bool ModelForms::choose(const PrepareConfig& c, const std::string& path, Module& model, Choices& choices,
                        Report& report) const {
  const PrepareSpec spec = prepare_spec(c);
  bool all_match = true;
  for (size_t i = 0; i < spec.rules.size(); ++i) {
    if (matches_a_layer(model, spec.rules[i].layers)) continue;
    PrepareSpec alone;
    alone.rules = {spec.rules[i]};
    try {
      choose_layers(model, alone);
    } catch (const Error& error) {
      report.error(c.rules[i].mark, concat(path, ".rules.", i, ".layers: ", library_text(error.what())),
                   spec.rules[i].layers.size());
      all_match = false;
    }
  }
  if (!all_match) return false;
  try {
    for (const LayerChoice& choice : choose_layers(model, spec))
      if (choice.quant) choices[choice.layer] = {*choice.quant, mark_of(c, choice.rule)};
  } catch (const Error& error) {  // of choices that depend on each other
    const std::string text = library_text(error.what());
    const auto named = std::find_if(c.rules.rbegin(), c.rules.rend(), [&](const QuantRuleConfig& r) {
      return text.find(concat("rule '", r.layers, "' falls on")) != std::string::npos;
    });
    report.error(named == c.rules.rend() ? c.mark : named->mark, concat(path, ": ", text), 1);
    return false;
  }
  return true;
}

// nullptr: the layer's own keys apply.
const ModelForms::Choice* ModelForms::choice_of(const QuantForm& form, const std::string& place) {
  const std::string path = layer_path_of(place);
  const auto at = form.choices.lower_bound(path);
  const bool own = at == form.choices.end() || (at->first != path && !at->first.starts_with(path + '.'));
  return own ? nullptr : &at->second;
}

// Prepares layer by layer, so that an error can be attributed. That the choices fit each other is known (choose).
std::optional<ModelForms::Refusal> ModelForms::prepare_layers(const QuantForm& form, Module& model) {
  for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot)) {
    const auto found = form.choices.find(at.layer);
    if (found == form.choices.end()) continue;
    const auto& [path, choice] = *found;
    try {
      at.slot->set(choice.quant, at.slot->mode());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kBug) throw;
      const std::string text = concat("[prepare] layer '", path, "' by rule '", path, "' (recipe ", choice.quant.recipe,
                                      "): ", error.what());
      return Refusal{path.substr(layer_path_of("").size()), library_text(text), &choice.mark};
    }
  }
  set_quant_mode(model, form.mode);
  return std::nullopt;
}

std::optional<ModelForms::Refusal> ModelForms::refusal_in(QuantForm& form, const std::vector<LayerSpec>& layers) const {
  std::optional<Refusal> off;
  for_each_place(layers, [&](const LayerSpec& layer, const std::vector<std::string>& places) {
    for (const std::string& place : places) {
      const Choice* const choice = choice_of(form, place);
      const bool integer =
          choice ? choice->quant.compute == Compute::kIntegerOut : layer.product.compute == Compute::kIntegerOut;
      if (!off && integer && form.mode.quantization == QuantSwitch::kOff && find_layer_kind(layer.kind)->product)
        off = Refusal{place,
                      "compute: integer_out returns int32 and has no float equivalent: it cannot be switched off. Use "
                      "compute: packed.",
                      &form.mark};
    }
  });
  if (off) return off;
  try {
    const std::shared_ptr<Sequential> model = made(layers);
    if (auto refused = prepare_layers(form, *model)) return refused;
    model->check_causal();
    Form input;
    input.sample = {kFeatures};
    input.dtype = input_;
    input.values = values_;
    if (input_ == dtypes::int32) input.ids = 1;  // the vocabulary size is known once the data are open
    if (plans_) form.output = model->plan(input).dtype;
  } catch (const LayerError& error) {
    if (error.code() == ErrorCode::kBug) throw;
    const LayerSpec* const layer = layer_at(layers, error.layer());
    if (layer != nullptr && !layer->lists.empty()) return std::nullopt;  // about shapes, which are not known yet
    const Choice* const choice = choice_of(form, error.layer());
    return Refusal{error.layer(), library_text(error.message()), choice ? &choice->mark : nullptr};
  }
  return std::nullopt;
}

std::optional<ModelForms::Refusal> ModelForms::refusal(const std::vector<LayerSpec>& layers) {
  for (QuantForm& form : forms_)
    if (auto refused = refusal_in(form, layers)) return refused;
  return std::nullopt;
}

bool ModelForms::by_own_keys(const std::vector<std::string>& places) const {
  bool ever_held = false;
  for (const std::string& place : places)
    for (const QuantForm& form : forms_) {
      const bool held = choice_of(form, place) != nullptr;
      if (!held && form.mode.quantization != QuantSwitch::kOff) return true;
      ever_held |= held;
    }
  return !ever_held;
}

DType ModelForms::dtype() const {
  for (const QuantForm& form : forms_)
    if (form.output != dtypes::fp32) return form.output;
  return dtypes::fp32;
}

}  // namespace bitgrad::config
