// Phases: the quantization of the model changes over time. docs/numerics.md section 9.
//
// The form of the model depends on the layers' own quantization and on the phases up to an index, in order, but not on
// any values. A resumed run therefore replays the phases and then loads the values from the checkpoint.
#include "train/phases.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "nn/activation_quantizer.h"
#include "train/train_state.h"

namespace bitgrad::detail {
namespace {

std::string describe(const QuantPhase& phase) {
  std::string text =
      concat("quantization ", enum_name(phase.mode.quantization), ", observers ", phase.mode.observers ? "on" : "off",
             phase.mode.norm_statistics ? "" : ", norm statistics fixed");
  if (!phase.spec) return text;
  const PrepareSpec& spec = *phase.spec;
  if (spec.all) text += concat(", all layers ", spec.all->recipe);
  if (spec.first) text += concat(", first ", spec.first->recipe);
  if (spec.last) text += concat(", last ", spec.last->recipe);
  for (const QuantRule& rule : spec.rules) text += concat(", ", rule.layers, ' ', rule.quant.recipe);
  return text;
}

std::string name_of(const std::vector<QuantPhase>& phases, int64_t index) {
  return concat("phase ", index, " (from step ", phases[static_cast<size_t>(index)].from, ')');
}

void check_order(const std::vector<QuantPhase>& phases) {
  for (size_t i = 0; i < phases.size(); ++i) {
    const int64_t from = phases[i].from;
    if (i == 0 ? from == 0 : from > phases[i - 1].from) continue;
    const std::string what = i == 0 ? concat("the first phase begins at step 0: got step ", from)
                                    : concat("phase ", i, " begins after the previous one: got step ", from,
                                             ", expected ", phases[i - 1].from + 1, " or more");
    throw PhaseError("[phases] " + what, ErrorCode::kUsage, static_cast<int64_t>(i));
  }
}

// What the switches of quantization act on.
struct Quantized {
  bool any = false, observed = false;
};
void find_quantized(Module& module, Quantized& found) {
  if (const auto* quantizer = dynamic_cast<const ActivationQuantizer*>(&module)) {
    found.any = true;
    found.observed = found.observed || quantizer->quant().observer.has_value();
  }
  for (Module* child : module.children()) find_quantized(*child, found);
}

// Turns an Error of `use` into a PhaseError that names the phase.
template <typename Use>
void in_phase(const std::vector<QuantPhase>& phases, int64_t index, Use use) {
  try {
    use();
  } catch (const PhaseError&) {
    throw;
  } catch (const Error& e) {
    throw PhaseError(concat("[phases] ", name_of(phases, index), ": ", e.what()), e.code(), index);
  }
}

}  // namespace

void log_quantization(Module& model) {
  TextWriter table;
  print_quantization(table, model);
  TextReader lines(table.str());
  for (std::string line; std::getline(lines, line);) log(LogLevel::kInfo, line);
}

std::string phase_text(const Learner& learner) {
  const QuantPhase& phase = learner.phases().at(static_cast<size_t>(learner.phase()));
  return concat("phase ", learner.phase(), " from step ", phase.from, ": ", describe(phase));
}

void Phases::set(std::vector<QuantPhase> phases) {
  require(list_.empty() && s_.state.microbatch == 0, "phases", "phases are set once, before the first microbatch: got ",
          s_.state.microbatch, " done, and ", list_.size(), " phases set");
  check_order(phases);
  for (const Quantizable* slot : s_.model->quantizables()) own_.push_back(slot->quant());
  list_ = std::move(phases);
  if (list_.size() > 1) try_from(-1);
  enter(0);
}

// Changes from the form of the previous phase to that of `phase`.
void Phases::change_form(int64_t phase) {
  s_.forget_recorded();
  const QuantPhase& next = list_[static_cast<size_t>(phase)];
  in_phase(list_, phase, [&] {
    if (next.spec)
      prepare(*s_.model, *next.spec, next.mode);
    else
      set_quant_mode(*s_.model, next.mode);
  });
}

// Changes from any form to that of `phase`; -1 is the form before all phases.
void Phases::replay(int64_t phase) {
  const std::vector<Quantizable*> slots = s_.model->quantizables();
  for (size_t i = 0; i < slots.size(); ++i) slots[i]->set(own_[i], {});
  operands_follow_slots(*s_.model);
  set_quant_mode(*s_.model, {});
  for (int64_t i = 0; i <= phase; ++i) change_form(i);
}

void Phases::bind_phase(int64_t phase) {
  in_phase(list_, phase, [&] { s_.rebind(); });
  entering_ = false;
}

void Phases::try_form(int64_t phase) {
  change_form(phase);
  const std::vector<Parameter*> parameters = s_.model->parameters();
  in_phase(list_, phase, [&] {
    for (const Parameter* p : parameters) check_codes_that_train(*p, s_.policy);
    s_.optimizer->check(parameters);
    if (!s_.plan) return;
    PlanSpec form = *s_.plan;
    form.train_samples = form.eval_samples = 0;
    s_.plan_and_check(form);
  });
}

// A switch that acts on nothing is no difference, nor is the precision of layers that are switched off.
void Phases::note_form(int64_t phase) {
  PhaseForm form{{}, list_[static_cast<size_t>(phase)].mode};
  Quantized found;
  find_quantized(*s_.model, found);
  for (const Quantizable* slot : s_.model->quantizables()) {
    found.any = found.any || slot->quant().weight || slot->quant().input;
    if (!slot->on()) continue;
    form.layers.push_back(slot->quant());
    form.layers.back().recipe.clear();
  }
  if (!found.any) form = {};  // nothing is quantized, on or off
  if (!found.observed) form.mode.observers = true;
  forms_.push_back(std::move(form));
}

int64_t Phases::form_start(int64_t phase) const {
  if (forms_.empty()) return 0;
  const auto form = [&](int64_t i) -> const PhaseForm& { return forms_.at(static_cast<size_t>(i)); };
  while (phase > 0 && form(phase - 1) == form(phase)) --phase;
  return phase;
}

void Phases::try_all() {
  if (list_.size() > 1) try_from(now_);
}

// Applies every form in turn, so that errors show before training; then restores the model's values, in the form `now`.
void Phases::try_from(int64_t now) {
  entering_ = true;
  const ModelSnapshot snapshot(*s_.model);
  replay(-1);
  forms_.clear();
  for (int64_t i = 0; i < std::ssize(list_); ++i) {
    try_form(i);
    note_form(i);
  }
  replay(now);
  snapshot.restore(*s_.model);
  if (now >= 0) return bind_phase(now);
  s_.rebind();
  entering_ = false;
}

void Phases::enter(int64_t index) {
  const int64_t count = std::max<int64_t>(std::ssize(list_), 1);
  require(index >= 0 && index < count, "phases", "got phase ", index, ", expected one of ", count);
  if (list_.empty()) return;
  entering_ = true;
  now_ = index;
  replay(index);
  bind_phase(index);
}

void Phases::enter_due() {
  while (now_ + 1 < std::ssize(list_) && list_[static_cast<size_t>(now_ + 1)].from <= s_.state.step) {
    s_.gather_state();
    if (s_.since_requantize > 0) s_.requantize();
    entering_ = true;
    change_form(++now_);
    bind_phase(now_);
    const QuantPhase& phase = list_[static_cast<size_t>(now_)];
    log(LogLevel::kInfo, concat("phase ", now_, " at step ", s_.state.step, ": ", describe(phase)));
    if (phase.spec) log_choices(*s_.model, *phase.spec);
    log_quantization(*s_.model);
  }
}

void Phases::end() {
  list_.clear();
  forms_.clear();
  now_ = 0;
  entering_ = false;
}

void log_choices(Module& model, const PrepareSpec& spec) {
  std::vector<std::vector<std::string>> lines{{"layer", "rule", "recipe"}};
  for (const LayerChoice& c : choose_layers(model, spec))
    lines.push_back({c.layer, c.quant ? c.rule : "(no rule)", c.slot->quant().recipe});
  TextReader table(text_table(lines));
  for (std::string line; std::getline(table, line);) log(LogLevel::kInfo, line);
}

const PrepareSpec* spec_of_now(const Learner& learner) {
  for (int64_t i = learner.phase(); i >= 0 && i < std::ssize(learner.phases()); --i)
    if (const auto& spec = learner.phases()[static_cast<size_t>(i)].spec) return &*spec;
  return nullptr;
}

}  // namespace bitgrad::detail
