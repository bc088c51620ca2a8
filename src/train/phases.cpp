// Phases: how the model is held changes over time. docs/numerics.md section 9.
//
// A form follows from the layers' own quantization and from the phases up to an index, in order, whatever the numbers
// are: a resumed run replays them and then takes its numbers from the checkpoint.
#include "train/phases.h"

#include <algorithm>

#include "bitgrad/base/log.h"
#include "bitgrad/base/text_stream.h"
#include "train/numbers.h"

namespace bitgrad {

namespace {

std::string describe(const QuantPhase& phase) {
  std::string text = concat("quantization ", quant_switch_name(phase.mode.quantization), ", observers ",
                            phase.mode.observers ? "on" : "off");
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
                                    : concat("phase ", i, " begins after the one before: got step ", from,
                                             ", expected ", phases[i - 1].from + 1, " or more");
    throw PhaseError("[phases] " + what, ErrorCode::kUsage, static_cast<int64_t>(i));
  }
}

// What `use` throws names the phase.
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

void detail::log_quantization(Module& model) {
  TextWriter table;
  print_quantization(table, model);
  TextReader lines(table.str());
  for (std::string line; std::getline(lines, line);) log(LogLevel::kInfo, line);
}

void detail::enter_phase_of(const CheckpointHeader& header, const std::string& file, Learner& learner) {
  const int64_t count = std::max<int64_t>(std::ssize(learner.phases()), 1);
  if (header.phase >= count)
    fail_with(ErrorCode::kData, "checkpoint", file, ": was saved in phase ", header.phase,
              " of quantization, the configuration has ", count);
  if (header.phase != learner.phase()) learner.enter_phase(header.phase);
}

void Learner::set_phases(std::vector<QuantPhase> phases) {
  require(phases_.empty() && state_.microbatch == 0, "phases", "they are set once, before the first microbatch: got ",
          state_.microbatch, " done, and ", phases_.size(), " phases set");
  check_order(phases);
  const DeviceGuard guard(device_);
  for (const Quantizable* slot : model_->quantizables()) own_.push_back(slot->quant());
  phases_ = std::move(phases);
  if (phases_.size() > 1) try_phases(-1);
  enter_phase(0);
}

// To the form of a phase from that of the one before.
void Learner::change_form(int64_t phase) {
  forget_recorded();
  const QuantPhase& next = phases_[static_cast<size_t>(phase)];
  in_phase(phases_, phase, [&] {
    if (next.spec)
      prepare(*model_, *next.spec, next.mode);
    else
      set_quant_mode(*model_, next.mode);
  });
}

// To the form of a phase, -1: that of no phase, from any other.
void Learner::replay(int64_t phase) {
  const std::vector<Quantizable*> slots = model_->quantizables();
  for (size_t i = 0; i < slots.size(); ++i) slots[i]->set(own_[i], {});
  set_quant_mode(*model_, {});
  for (int64_t i = 0; i <= phase; ++i) change_form(i);
}

// What belongs to the form of the model.
void Learner::settle() {
  parameters_ = model_->parameters();
  forget_recorded();
  for (const Parameter* p : parameters_) detail::check_codes_that_train(*p, policy_);
  optimizer_->attach(parameters_);
  for (Parameter* p : parameters_) p->forget_layouts();  // those of other phases: kernels are chosen by what there is
  if (plan_) check_plan(*plan_);
  entering_ = false;
}

void Learner::settle_in(int64_t phase) {
  in_phase(phases_, phase, [&] { settle(); });
}

void Learner::try_form(int64_t phase) {
  change_form(phase);
  const std::vector<Parameter*> parameters = model_->parameters();
  in_phase(phases_, phase, [&] {
    for (const Parameter* p : parameters) detail::check_codes_that_train(*p, policy_);
    optimizer_->check(parameters);
    if (!plan_) return;
    PlanSpec form = *plan_;
    form.train_samples = form.eval_samples = 0;
    check_plan(form);
  });
}

// Every form, one after the other; then the model is as it was, in the form `now`.
void Learner::try_phases(int64_t now) {
  entering_ = true;
  const detail::Numbers numbers(*model_);
  replay(-1);
  for (int64_t i = 0; i < std::ssize(phases_); ++i) try_form(i);
  replay(now);
  numbers.put_back(*model_);
  if (now < 0)
    settle();
  else
    settle_in(now);
}

void Learner::enter_phase(int64_t index) {
  const int64_t count = std::max<int64_t>(std::ssize(phases_), 1);
  require(index >= 0 && index < count, "phases", "got phase ", index, ", expected one of ", count);
  if (phases_.empty()) return;
  const DeviceGuard guard(device_);
  entering_ = true;
  phase_ = index;
  replay(index);
  settle_in(index);
}

void Learner::enter_due_phases() {
  while (phase_ + 1 < std::ssize(phases_) && phases_[static_cast<size_t>(phase_ + 1)].from <= state_.step) {
    if (since_requantize_ > 0) requantize();
    entering_ = true;
    change_form(++phase_);
    settle_in(phase_);
    log(LogLevel::kInfo,
        concat("phase ", phase_, " at step ", state_.step, ": ", describe(phases_[static_cast<size_t>(phase_)])));
    if (const auto& spec = phases_[static_cast<size_t>(phase_)].spec) detail::log_choices(*model_, *spec);
    detail::log_quantization(*model_);
  }
}

void Learner::convert() {
  forget_recorded();
  const DeviceGuard guard(device_);
  bitgrad::convert(*model_);
  phases_.clear();
  phase_ = 0;
  converted_ = true;
  settle();
}

}  // namespace bitgrad
