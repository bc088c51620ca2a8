#include "train/step.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "bitgrad/base/device.h"
#include "bitgrad/base/profile.h"
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"

#include "kernels/flag.h"
#include "kernels/map/fill.h"
#include "kernels/reduce.h"
#include "train/integer.h"
#include "train/reducer.h"
#include "train/window_sums.h"

namespace bitgrad::detail {
namespace {

// With more microbatches per window than this, nearest rounding would stall sums in bf16.
constexpr int64_t kStochasticSums = 8;

}  // namespace

const Step::Stage Step::kStages[] = {
    {"forward", kFront, kEachMicrobatch, &Step::forward},
    {"backward", kFront, kEachMicrobatch, &Step::backward},
    {"sum", kFront, kEachMicrobatch, &Step::sum},
    {"reduce", kFront, kWindowEnd, &Step::reduce},
    {"check_forward", kFront, kWindowEnd, &Step::check_forward},
    {"check_gradients", kFront, kWindowEnd, &Step::check_gradients},
    {"update", kBack, kWindowEnd, &Step::update},
    {"requantize", kBack, kWindowEnd, &Step::requantize},
};

void Step::run(Part part) {
  try {
    for (const Stage& stage : kStages)
      if (stage.part == part && runs(stage)) {
        const ProfileRange range(stage.name);
        (this->*stage.run)();
      }
  } catch (...) {
    tape_.reset();
    loss_ = {};
    end_sequences(s_);
    throw;
  }
}

bool Step::runs(const Stage& stage) const {
  if (stage.when == kEachMicrobatch) return has_microbatch_;
  return key_.last && (stage.run == &Step::reduce || !empty());
}

Step::Step(TrainState& state, const Tensor& x, const Target& target)
    : s_(state), x_(x), target_(target), learning_rate_(state.learning_rate(state.state.step)) {
  key_.rows = x.shape()[0];
  key_.target = target.tensor.numel();
  key_.counted = target.counted;
  key_.document_end = s_.document_end;
  const double before = s_.window.weight();
  key_.first = before == 0;  // what was passed over did not run
  key_.last = s_.window.microbatches + 1 == s_.own_microbatches();
  if (!key_.last) return;
  set_rule_factors();
  key_.divisor = before + target.weight;
  due_ = s_.due_after(1 + s_.others_microbatches());
  key_.requantize = due_.has_value();
}

Step::Step(TrainState& state)
    : s_(state), has_microbatch_(false), learning_rate_(state.learning_rate(state.state.step)) {
  set_rule_factors();
  key_.divisor = s_.window.weight();
  key_.last = true;
  due_ = s_.due_after(s_.others_microbatches());
  key_.requantize = due_.has_value();
}

void Step::set_rule_factors() {
  if (s_.rule_factors) s_.optimizer->set_factors(s_.rule_factors(s_.state.step));
}

void Step::record_at(const Tensor& x, const Tensor& target, const StepOutcome& outcome) {
  x_ = x;
  target_.tensor = target;
  outcome_ = outcome;
  recorded_ = true;
}

void Step::run_one_by_one(const Tensor& x, const Target& target) {
  x_ = x;
  target_ = target;
  outcome_ = {};
  recorded_ = false;
}

void Step::choose_gradient_rounding() const {
  for (Parameter* p : s_.parameters)
    if (p->spec().grad == dtypes::bf16) {
      const RandomStream draws = live_by_microbatch(
          {s_.state.seed, Purpose::kGradAccumulate, site_id(p->path()), static_cast<uint32_t>(s_.state.microbatch)});
      p->grad_sink().set_rounding(s_.policy.accumulate > kStochasticSums ? &draws : nullptr);
    }
}

void Step::forward() {
  choose_gradient_rounding();
  tape_.emplace();
  loss_ = run_forward(s_, x_, target_, outcome_).loss;
}

// The gradient is that of the sum over all counted elements, so a mean loss is seeded with the count. In a window of
// one microbatch, updates may run inside backward, so the forward pass is checked first.
void Step::backward() {
  if (!recorded_ && s_.policy.accumulate == 1) {
    check_forward();
    s_.optimizer->arm(learning_rate_, key_.divisor, due_ ? &*due_ : nullptr);
  }
  if (s_.reducer && key_.last)
    s_.reducer->run_last([this] { run_backward(); });
  else
    run_backward();
  loss_ = {};
  tape_.reset();
  end_sequences(s_);
  on_poll([done = outcome_.backward_done] { *done = true; });
}

void Step::run_backward() {
  if (!s_.loss.is_mean(target_.tensor)) return tape_->backward(loss_);
  const Tensor seed = Tensor::empty(loss_.shape(), dtypes::fp32);
  run_map(maps::Fill{seed.as<float>(), static_cast<float>(target_.counted)}, seed.numel());
  tape_->backward({loss_}, {seed});
}

// Gradients stay in the parameters, where backward accumulates them, or become terms of the summation tree, but for the
// last term.
void Step::sum() {
  if (s_.sums && !key_.last) s_.sums->add(s_.parameters);
}

void Step::reduce() {
  if (!s_.sums) return;
  std::vector<double> weights = s_.window.weights;
  if (has_microbatch_) weights.push_back(target_.weight);
  s_.sums->finish(s_.parameters);
  key_.divisor = s_.reducer ? s_.reducer->finish(weights) : std::accumulate(weights.begin(), weights.end(), 0.0);
}

// On a device this only queues the check; the window polls errors after the front part.
void Step::check_forward() {
  s_.check_flags("in a forward pass");
  if (!s_.window.bad_input.empty()) fail_input(s_.window.bad_input, "");
}

void Step::begin_optimizer_step() {
  if (key_.last) s_.optimizer->begin_step(learning_rate_, key_.divisor);
}

// Also computes what the update needs first: gradients of learned parts, and the norm for a clip.
void Step::check_gradients() {
  begin_optimizer_step();
  s_.optimizer->check_gradients(key_.divisor, *outcome_.sums);
}

void Step::set_scalars() { s_.optimizer->begin_update(learning_rate_, key_.divisor, *outcome_.sums); }

void Step::update() { s_.optimizer->apply(due_ ? &*due_ : nullptr); }

void Step::requantize() { s_.optimizer->requantize(due_ ? &*due_ : nullptr); }

void StepOutcome::write_to(StepResult& result) const {
  result.loss = *loss;
  result.correct = static_cast<int64_t>(*correct);
  result.among_top5 = static_cast<int64_t>(*among_top5);
  result.squared_error = *squared_error;
  if (cross_entropy) result.cross_entropy = *cross_entropy;
  result.measured = *measured;
}

Var run_model(TrainState& s, const Tensor& x) {
  s.state.sequence.starts = s.document_end < 0 ? Tensor() : document_starts(x, s.document_end);
  if (const auto network = evaluated_network(s)) return network->run(x);
  follow_network(s, x);
  return s.model->forward(x);
}

Forward run_forward(TrainState& s, const Tensor& x, const Target& target, const StepOutcome& outcome) {
  const Var outputs = run_model(s, x);
  const Var loss = s.loss(outputs, target.tensor);
  read_later(loss.value(), outcome.loss);
  on_poll([&window = s.window, sum = outcome.loss, count = s.loss.is_mean(target.tensor) ? target.counted : 1] {
    *sum = count == 0 ? 0.0 : *sum * static_cast<double>(count);
    if (!std::isfinite(*sum) && !window.bad_loss) window.bad_loss = *sum;  // the next check of the flags throws
  });
  if (target.tensor.dtype() == dtypes::int32)
    read_later(top_k_count(outputs.value(), target.tensor, 1), outcome.correct);
  return {outputs, loss};
}

void read_later(const Tensor& number, const std::shared_ptr<double>& to) {
  if (current_device().is_cpu()) {
    *to = number.item();
    return;
  }
  constexpr int64_t kWord = sizeof(uint32_t);
  const auto word = [&](int64_t at, std::function<void(uint32_t)> take) {
    const FlagWord flag;
    device_backend(current_device())
        .copy(CopyWay::kOnDevice, flag.word(), kWord, static_cast<const uint8_t*>(number.data()) + at * kWord, kWord,
              kWord, 1);
    flag.read(std::move(take));
  };
  if (number.dtype() == dtypes::fp32)
    return word(0, [to](uint32_t bits) { *to = static_cast<double>(std::bit_cast<float>(bits)); });
  const auto low = std::make_shared<uint32_t>(0);
  const bool is_count = number.dtype() == dtypes::int64;
  word(0, [low](uint32_t bits) { *low = bits; });
  word(1, [low, to, is_count](uint32_t bits) {
    const uint64_t joined = (uint64_t{bits} << 32) | *low;
    *to = is_count ? static_cast<double>(joined) : std::bit_cast<double>(joined);
  });
}

std::string non_finite_input(const Tensor& x) {
  if (!x.defined() || !x.dtype().is_float()) return "";
  const bool plain = x.dtype() == dtypes::fp32 && x.device().is_cpu() && x.contiguous();
  if (plain) {
    const DeviceGuard host(Device::cpu());  // like the tensor
    if (kernels::all_finite(x.as<float>(), x.numel())) return "";
  }
  const std::vector<float> values = x.to_vector();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto at = static_cast<int64_t>(i);
    return concat("x ", x, " holds ", std::isnan(values[i]) ? "NaN" : "Inf", " at [", at / x.cols(), ',', at % x.cols(),
                  ']');
  }
  return "";
}

void fail_input(const std::string& input, std::string_view what_moved) {
  fail_with(ErrorCode::kNonFinite, "input", input, ": samples must be finite.", what_moved);
}

void check_input(const Tensor& x) {
  if (const std::string input = non_finite_input(x); !input.empty()) fail_input(input, "");
}

}  // namespace bitgrad::detail
