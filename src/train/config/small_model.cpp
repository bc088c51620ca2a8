#include "train/config/small_model.h"

#include <algorithm>

#include "train/config/choices.h"
#include "train/config/merge.h"

namespace bitgrad::config {
namespace {

constexpr int64_t kFeatures = 2;

std::string path_of_layer(size_t i) { return concat("layers.", i); }

std::shared_ptr<Module> small_layer(const LayerConfig& layer, int64_t features) {
  LayerSpec spec = layer_spec(layer);
  spec.out = std::min(spec.out, kFeatures);
  spec.num = std::min(spec.num, kFeatures);
  spec.dim = std::min(spec.dim, kFeatures);
  return make_layer(spec, features);
}

// The mark of what won (LayerChoice::rule).
SourceMark mark_of(const PrepareConfig& c, const std::string& rule) {
  const auto named =
      std::find_if(c.rules.rbegin(), c.rules.rend(), [&](const QuantRuleConfig& r) { return r.layers == rule; });
  return named == c.rules.rend() ? c.mark : named->mark;
}

}  // namespace

SmallModel::SmallModel(const RunConfig& config, Report& report) {
  Form form;
  form.meta.features = kFeatures;
  form.meta.rows = 1;
  form.meta.dtype = choices::gives_ids(config.data.train) ? dtypes::int32 : dtypes::fp32;
  Sequential model;  // never planned: enough to know which layers have something to quantize
  for (LayerConfig layer : config.layers) {
    layer.compute = "int";
    layer.backward = {};
    model.append(small_layer(layer, kFeatures));
  }
  const QuantSection& quant = config.quant;
  ok_ = choose(quant.prepare, "quant", model, form.choices, report);
  if (quant.phases.empty()) forms_.push_back(form);
  for (size_t i = 0; i < quant.phases.size(); ++i) {
    const QuantPhaseConfig& phase = quant.phases[i];
    if (phase.prepare && !choose(*phase.prepare, concat("quant.phases.", i), model, form.choices, report)) ok_ = false;
    form.mode = quant_mode(phase);
    form.mark = phase.mark;
    forms_.push_back(form);
  }
}

bool SmallModel::choose(const PrepareConfig& c, const std::string& path, Module& model, Choices& choices,
                        Report& report) const {
  const PrepareSpec spec = prepare_spec(c);
  bool all_match = true;
  for (size_t i = 0; i < spec.rules.size(); ++i) {
    PrepareSpec alone;
    alone.rules = {spec.rules[i]};
    try {
      choose_layers(model, alone);
    } catch (const Error& error) {
      report.error(c.rules[i].mark, concat(path, ".rules.", i, ".layers: ", library_text(error)),
                   spec.rules[i].layers.size());
      all_match = false;
    }
  }
  if (!all_match) return false;
  for (const LayerChoice& choice : choose_layers(model, spec))
    if (choice.quant) choices[choice.layer] = {*choice.quant, mark_of(c, choice.rule)};
  return true;
}

TensorMeta SmallModel::plan(const Form& form, size_t i, const LayerConfig& layer) {
  const std::string path = path_of_layer(i);
  const std::shared_ptr<Module> module = small_layer(layer, form.meta.features);
  PrepareSpec spec;
  // In the order of names: the layer itself, others that begin like it (layers.1-x), what lies in it.
  for (auto at = form.choices.lower_bound(path); at != form.choices.end() && at->first.starts_with(path); ++at)
    if (at->first == path || at->first.starts_with(path + '.')) spec.rules.push_back({at->first, at->second.quant});
  prepare(*module, spec, form.mode, path);
  StepState state;
  module->initialize(path, state);
  return module->plan(form.meta);
}

// nullptr: the layer's own keys count.
const SmallModel::Choice* SmallModel::choice_of(const Form& form, size_t i) {
  const std::string path = path_of_layer(i);
  const auto at = form.choices.lower_bound(path);
  const bool own = at == form.choices.end() || (at->first != path && !at->first.starts_with(path + '.'));
  return own ? nullptr : &at->second;
}

SmallModel::Refusal SmallModel::refusal(size_t i, const LayerConfig& layer) const {
  for (const Form& form : forms_) {
    const Choice* choice = choice_of(form, i);
    const bool integer = choice ? choice->quant.compute == Compute::kInteger : layer.compute == "integer";
    if (form.mode.quantization == QuantSwitch::kOff && layer.kind == "linear" && integer)
      return {
          "compute: integer gives int32, which no float product does: it cannot be switched off. Use compute: "
          "int.",
          &form.mark};
    try {
      plan(form, i, layer);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kBug) throw;
      return {library_text(error), choice ? &choice->mark : nullptr};
    }
  }
  return {{}, nullptr};
}

bool SmallModel::by_own_keys(size_t i) const {
  bool ever_held = false;
  for (const Form& form : forms_) {
    const bool held = choice_of(form, i) != nullptr;
    if (!held && form.mode.quantization != QuantSwitch::kOff) return true;
    ever_held |= held;
  }
  return !ever_held;
}

void SmallModel::pass(size_t i, const LayerConfig& layer) {
  for (Form& form : forms_) form.meta = plan(form, i, layer);
}

DType SmallModel::dtype() const {
  for (const Form& form : forms_)
    if (form.meta.dtype != dtypes::fp32) return form.meta.dtype;
  return dtypes::fp32;
}

}  // namespace bitgrad::config
