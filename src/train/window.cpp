// The microbatches of a window, and what ends it: a step, nothing that counts, an Error, the run.
#include <cmath>
#include <utility>

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "train/averages.h"
#include "train/phases.h"
#include "train/ranks.h"
#include "train/reducer.h"
#include "train/step.h"
#include "train/step_graphs.h"
#include "train/train_state.h"
#include "train/window_sums.h"

namespace bitgrad::detail {
namespace {

// The learned parts of weights. Those that a requantization in the middle of a window fits again belong to its codes
// alone: a longer run trains on with what they were.
class KeptParts {
 public:
  explicit KeptParts(const std::vector<Parameter*>& parameters) {
    for (const Parameter* p : parameters)
      for (const auto& part : p->learned())
        kept_.emplace_back(part->value(), part->value().clone(MemoryKind::kWorkspace));
  }
  void restore() const {
    for (auto [part, before] : kept_) part.copy_from(before);
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> kept_;
};

// `x`, of this `weight`: its first microbatch; a rank without one has none.
void open_window(TrainState& s, const Tensor& x, double weight) {
  s.cut_window = {};
  s.phases->enter_due();
  s.follow_average();
  s.window.start = s.state.microbatch;
  s.window.all = s.window_ahead();
  if (s.total_steps > 0)
    s.state.progress = std::min(static_cast<double>(s.state.step) / static_cast<double>(s.total_steps), 1.0);
  for (Parameter* p : s.parameters)
    if (p->low_bit() && ste_rule(*p->spec().quant) == SteRule::kTanh)
      p->change([&](ParameterSpec& spec) { spec.quant->ste_t = annealed_t(*spec.quant, s.state.progress); });
  if (!s.ranks) return;
  s.state.microbatch += s.ranks->rank() * s.share();
  fit_steps_of_all(s, x, weight);
}

void begin_microbatch(TrainState& s, const Tensor& x, double weight) {
  s.state.training = true;
  if (s.window.microbatches == 0) open_window(s, x, weight);
  require(s.window.microbatches < s.own_microbatches(), "Learner", "got microbatch ", s.window.microbatches,
          " of this rank in a window of ", s.window.all, ", of which it runs ", s.own_microbatches(),
          ": expected flush, since the run has ", s.total_microbatches, " microbatches");
  if (!s.ranks)
    s.state.fits_steps = s.window.weight() == 0;
  else if (s.window.weight() > 0)
    s.state.fits_steps = false;
}

void note_input(TrainState& s, const Tensor& x, int64_t microbatch) {
  if (!s.window.bad_input.empty()) return;
  s.window.bad_input = non_finite_input(x);
  if (!s.window.bad_input.empty()) s.window.bad_input += concat(" in microbatch ", microbatch);
}

void count_microbatch(TrainState& s, const StepResult& result) {
  ++s.state.microbatch;
  ++s.since_requantize;
  ++s.window.microbatches;
  s.window.samples += result.samples;
  s.window.weights.push_back(result.weight);
}

void close_window(TrainState& s, bool requantized) {
  ++s.state.step;
  if (s.average) s.average->update(*s.model);
  if (s.ranks) {
    s.state.microbatch = s.window.start + s.window.all;
    s.since_requantize += s.others_microbatches();
  }
  s.window.bad_input.clear();
  s.window.end();
  if (requantized) s.since_requantize = 0;
}

// Goes on as if the window, in which nothing counts, had not been there.
void skip_window(TrainState& s) {
  ++s.skipped.windows;
  s.skipped.microbatches += s.window.microbatches + s.others_microbatches();
  s.state.microbatch = s.window.start;
  drop_window(s);
}

// Cleans up while an exception passes: gradients may be incomplete, or not finite.
void end_failed_window(TrainState& s, const Error& why) {
  discard_errors();
  s.optimizer->disarm();
  if (s.ranks) s.ranks->cancel(why);
  if (s.reducer) s.reducer->drop();
  if (s.usable()) drop_window(s);
}

// Ends the window and rethrows. If an input was not finite, the error names it, since the finding follows from it.
[[noreturn]] void fail_window(TrainState& s, const Error& error, const Tensor& x, int64_t microbatch) {
  if (error.code() == ErrorCode::kNonFinite) note_input(s, x, microbatch);
  const std::string input = std::exchange(s.window.bad_input, {});
  end_failed_window(s, error);
  if (error.code() != ErrorCode::kNonFinite || input.empty()) throw;
  fail_input(input, s.usable() ? " No parameter was updated."
                               : " Parameters were updated in the same backward: the model is lost.");
}

// Runs the stages of a step, polling errors between its front and back parts.
void run_stages(TrainState& s, Step& step, StepGraphs* graphs, StepResult& result) {
  const int64_t before = s.state.microbatch;
  try {
    if (graphs)
      graphs->run_front(step);
    else
      step.run_front();
    s.overlap();
    if (step.has_microbatch()) count_microbatch(s, result);
    poll_errors();
  } catch (...) {  // a microbatch whose backward failed does not count, even if a device reports it later
    s.state.microbatch = before + (*step.outcome().backward_done ? 1 : 0);
    throw;
  }
  if (step.has_microbatch()) {
    step.outcome().write_to(result);
    s.window.results.push_back(result);
  }
  if (!step.key().last) return;
  end_batches(s);
  if (step.empty()) {
    skip_window(s);
    result.skipped = true;
    return;
  }
  step.set_scalars();
  if (graphs)
    graphs->run_back(step);
  else
    step.run_back();
  s.optimizer->end_step();
  close_window(s, step.key().requantize);
  result.stepped = true;
}

// A microbatch in which nothing counts: its gradient is zero, a term of the sum that is left out.
void pass_over(TrainState& s, StepResult& result) {
  if (s.sums) s.sums->add(s.parameters);
  count_microbatch(s, result);
  s.window.results.push_back(result);
  if (s.window.microbatches < s.own_microbatches()) return;
  Step step(s);
  run_stages(s, step, nullptr, result);
}

StepResult run_checked(TrainState& s, const Tensor& x, const Target& target) {
  begin_microbatch(s, x, target.weight);
  StepResult result;
  result.samples = x.shape()[0];
  result.counted = target.counted;
  result.weight = target.weight;
  if (target.weight == 0) {
    pass_over(s, result);
    return result;
  }
  if (s.device.is_cpu()) note_input(s, x, s.state.microbatch);  // a device is checked only after an error
  Step step(s, x, target);
  run_stages(s, step, s.graphs && s.graphs->count_and_serve(step) ? s.graphs.get() : nullptr, result);
  return result;
}

void keep_cut_window(TrainState& s) {
  s.cut_window.since_requantize = s.since_requantize;
  for (const Parameter* p : s.parameters)
    if (p->low_bit() && p->has_master()) s.cut_window.codes[p->path()] = copy_with_scales(p->value());
}

}  // namespace

Target checked_target(const TrainState& s, const Tensor& x, const Target& given) {
  const Tensor& target = given.tensor;
  const int64_t samples = x.shape()[0], targets = target.shape().rank() > 0 ? target.shape()[0] : 0;
  require(targets == samples || !s.loss.recordable(), "microbatch", "labels: got ", targets,
          ", expected one for each of ", samples, " samples");
  if (target.device() != s.device)
    fail_with(ErrorCode::kDevice, "microbatch", "the target (", target, ") is on ", to_string(target.device()),
              ", the learner on ", to_string(s.device));
  const bool classes = target.dtype() == dtypes::int32;
  require(s.loss.takes(target.dtype()), "microbatch", "loss ", s.loss.name(), " expects ",
          classes ? "values (fp32)" : "classes (int32)", " as targets, got ", target);
  int64_t counted = given.counted;
  if (counted < 0 && classes && target.shape().rank() >= 2) counted = static_cast<int64_t>(target_count(target).item());
  if (counted < 0) counted = target.numel();
  return {target, counted, given.weight < 0 ? s.loss.weight(target, counted) : given.weight};
}

StepResult run_microbatch(TrainState& s, const Tensor& x, const Target& target) {
  const DeviceGuard guard(s.device);
  s.require_usable();
  require(!s.converted, "Learner", "the model is converted: it can only be evaluated");
  s.require_trainable("Learner");
  const int64_t now = s.state.microbatch;
  try {
    const Tensor planned = s.as_planned(x);
    const Target given = checked_target(s, planned, target);
    require(target.tensor.numel() > 0, "microbatch", "a microbatch needs at least one target, got ", target.tensor);
    return run_checked(s, planned, given);
  } catch (const Error& error) {
    fail_window(s, error, x, now);
  } catch (...) {
    end_failed_window(s, Error("an exception that is not an Error", ErrorCode::kBug));
    throw;
  }
}

void reopen_window(TrainState& s) {
  if (s.cut_window.codes.empty()) return;
  const DeviceGuard guard(s.device);
  for (Parameter* p : s.parameters)
    if (const auto codes = s.cut_window.codes.find(p->path()); codes != s.cut_window.codes.end())
      p->restore({p->master().clone(MemoryKind::kWorkspace), codes->second});
  s.since_requantize = s.cut_window.since_requantize;
  s.cut_window = {};
}

void flush(TrainState& s) {
  const DeviceGuard guard(s.device);
  s.require_usable();
  const bool ended = s.window.samples > 0;
  const bool without_part = s.ranks && s.window_ahead() > 0 && s.own_microbatches(s.window_ahead()) == 0;
  try {
    require(!ended || !s.ranks, "Learner", "flush inside a window: got ", s.window.microbatches,
            " microbatches, expected the ", s.own_microbatches(), " of this rank");
    if (without_part) open_window(s, {}, 0);
    if (ended || without_part) {
      Step step(s);
      StepResult result;
      run_stages(s, step, nullptr, result);
    }
  } catch (const Error& error) {
    fail_window(s, error, {}, s.state.microbatch);
  } catch (...) {
    end_failed_window(s, Error("an exception that is not an Error", ErrorCode::kBug));
    throw;
  }
  const bool whole = !ended && !(s.ranks && s.window.all < s.policy.accumulate);  // the last window
  if (s.since_requantize > 0) {
    s.gather_state();
    const KeptParts parts(s.parameters);
    if (whole) keep_cut_window(s);
    s.requantize();
    if (whole) parts.restore();
  }
  poll_errors();
}

void drop_window(TrainState& s) {
  const DeviceGuard guard(s.device);
  for (Parameter* p : s.parameters) p->grad_sink().clear();
  if (s.sums) s.sums->drop();
  s.state.flags.clear();  // from the window's forward passes
  s.window.bad_loss.reset();
  s.window.bad_input.clear();
  if (s.state.batch_statistics) s.state.batch_statistics->clear();
  if (s.state.observed_ranges) s.state.observed_ranges->clear();
  s.since_requantize -= s.window.microbatches;
  s.window.end();
}

void set_counters(TrainState& s, int64_t step, int64_t microbatch, int64_t since_requantize) {
  s.forget_recorded();
  drop_window(s);
  s.cut_window = {};
  s.state.step = step;
  s.state.microbatch = microbatch;
  s.since_requantize = since_requantize;
  s.optimizer->set_steps(step);
}

}  // namespace bitgrad::detail
