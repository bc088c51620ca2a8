#include "train/evaluation.h"

#include <cmath>
#include <utility>

#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "optim/shards.h"
#include "train/batch_feed.h"
#include "train/ranks.h"
#include "train/step.h"

namespace bitgrad::detail {

// Runs `work` in evaluation mode, then checks the flags.
void Evaluator::run_in_mode(const std::function<void()>& work) {
  s_.check_usable();
  NoGrad off;
  struct EvaluationMode {
    TrainState& state;
    ~EvaluationMode() {
      state.state.training = true;
      end_sequences(state);
    }
  } const mode{s_};
  s_.state.training = false;
  try {
    work();
    s_.check_flags("in an evaluation");
    s_.overlap();
    poll_errors();
  } catch (...) {
    discard_errors();
    s_.window.bad_loss.reset();
    throw;
  }
}

// If x is not finite, the error names it. On a device x is checked only after an error, since that copies it.
void Evaluator::run(const Tensor& x, const std::function<void()>& work) {
  s_.require_values();
  if (s_.device.is_cpu()) check_input(x);
  try {
    run_in_mode(work);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNonFinite) check_input(x);
    throw;
  }
}

Tensor Evaluator::predict(const Tensor& x) {
  const DeviceGuard guard(s_.device);
  Tensor logits;
  run(x, [&] { logits = run_model(s_, s_.as_planned(x)).value(); });
  return logits;
}

// Metrics with their own sums, and the output hook.
void Evaluator::run_measures(const Tensor& outputs, const Tensor& target, const StepOutcome& outcome) const {
  if (measures_.empty() && !hook_) return;
  const Tensor y = outputs.on_host(), t = target.on_host();
  const DeviceGuard cpu(Device::cpu());
  for (const auto& [name, measure] : measures_) (*outcome.measured)[name] = measure(y, t);
  if (hook_) hook_(y, t);
}

void Evaluator::measure(const Tensor& outputs, const Tensor& target, const StepOutcome& outcome) const {
  constexpr int64_t kFive = 5;
  if (target.dtype() == dtypes::fp32) {
    if (outputs.numel() == target.numel())
      read_later(squared_error_total(outputs, target.reshape(outputs.shape())), outcome.squared_error);
  } else if (outputs.cols() > kFive) {
    read_later(top_k_count(outputs, target, kFive), outcome.among_top5);
  }
  if (outcome.cross_entropy) read_later(cross_entropy(outputs, target, Reduction::kSum).value(), outcome.cross_entropy);
  run_measures(outputs, target, outcome);
}

StepResult Evaluator::evaluate(const Tensor& x, const Target& given) {
  const DeviceGuard guard(s_.device);
  const Tensor planned = s_.as_planned(x);
  const Target target = checked_target(s_, planned, given);
  StepResult result;
  result.samples = x.shape()[0];
  result.counted = target.counted;
  result.weight = target.weight;
  StepOutcome outcome;  // a device delivers loss and hits together with the flags, in one wait
  const bool classes = target.tensor.dtype() == dtypes::int32;
  if (classes && s_.loss.name() == "softmax_cross_entropy" && !s_.loss.plain())
    outcome.cross_entropy = StepOutcome::zero();
  run(x, [&] {
    const Forward made = run_forward(s_, planned, target, outcome);
    measure(made.outputs.value(), target.tensor, outcome);
  });
  outcome.write_to(result);
  if (!std::isfinite(result.loss)) check_input(x);
  return result;
}

namespace {

// The batch that one rank has evaluated in a round.
struct EvaluatedBatch {
  StepResult result;
  Tensor outputs, target;  // on the host; only if something follows them
};

// Those of all ranks, in order.
std::vector<EvaluatedBatch> of_all(const std::optional<EvaluatedBatch>& own, Communicator& ranks) {
  Writer to;
  if (own) {
    write(to, own->result);
    to.put(own->outputs.defined());
    for (const Tensor* t : {&own->outputs, &own->target})
      if (t->defined()) write(to, *t);
  }
  std::vector<EvaluatedBatch> batches;
  for (const std::vector<std::byte>& part : gather_lists(ranks, to.bytes())) {
    if (part.empty()) continue;
    Reader from(part);
    EvaluatedBatch& b = batches.emplace_back();
    b.result = read_result(from);
    if (!from.get<bool>()) continue;
    const DeviceGuard cpu(Device::cpu());
    b.outputs = read_tensor(from);
    b.target = read_tensor(from);
  }
  return batches;
}

LoaderOptions loader_options(int64_t batch, const EvaluationRanks& among) {
  LoaderOptions options;
  options.micro = batch;
  options.shuffle = false;
  options.end_epoch = 1;
  if (among.ranks != nullptr && !among.first_alone)
    options.share = {among.ranks->rank(), among.ranks->size(), among.ranks->size()};
  return options;
}

}  // namespace

std::optional<Evaluation> evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident,
                                   int64_t samples, const std::function<bool()>& stop, const OutputHook& hook,
                                   EvaluationRanks among) {
  const DeviceGuard guard(learner.device());
  Communicator* const ranks = among.ranks;
  std::optional<BatchFeed> feed;
  if (ranks == nullptr || !among.first_alone || ranks->rank() == 0)
    feed.emplace(learner, data, loader_options(batch, among), resident);
  const MetricTask task{data.target_form(), learner.loss().name(), data.vocabulary()};
  TrainState& state = learner.train_state();
  struct Documents {
    int64_t& end;
    const int64_t before = end;
    ~Documents() { end = before; }
  } const documents{state.document_end};
  state.document_end = data.document_end();
  const Followers followers = followers_of(task, state.metric_keys);
  EvaluatedBatch now;
  Evaluator evaluator(
      state, measures_of(task, state.metric_keys),
      followers.empty() && !hook ? OutputHook() : [&](const Tensor& outputs, const Tensor& target) {
        now.outputs = outputs;
        now.target = target;
      });
  StepResult sums;
  const auto wants = [&] { return sums.weight == 0 || sums.samples < samples; };
  while (wants()) {
    if (stop && stop()) return std::nullopt;
    const bool read = feed && feed->next();
    if (read) now.result = evaluator.evaluate(feed->x(), {feed->target(), feed->counted(), feed->weight()});
    std::vector<EvaluatedBatch> round;
    if (ranks != nullptr)
      round = of_all(read ? std::optional(now) : std::nullopt, *ranks);
    else if (read)
      round.push_back(now);
    if (round.empty()) break;
    for (const EvaluatedBatch& b : round) {
      if (!wants()) break;
      if (b.outputs.defined()) {
        const DeviceGuard cpu(Device::cpu());
        for (const auto& [name, follower] : followers) follower->add(b.outputs, b.target);
        if (hook) hook(b.outputs, b.target);
      }
      add_sums(b.result, sums);
    }
  }
  if (sums.weight == 0)
    fail_with(ErrorCode::kData, "evaluate", data.name(), ": no target of its ", sums.samples,
              " samples counts: all are ignored (ignore_label, mask), or of a class of weight 0, so no loss is defined "
              "on them. Evaluate on other samples");
  Evaluation e;
  e.samples = sums.samples;
  e.metrics = metric_values(task, sums, followers);
  e.loss = value_of(e.metrics, "loss").value();
  e.accuracy = value_of(e.metrics, "accuracy").value_or(-1);
  return e;
}

}  // namespace bitgrad::detail

bitgrad::Evaluation bitgrad::evaluate(Learner& learner, const Dataset& data, int64_t batch, Communicator* ranks) {
  std::optional<Evaluation> result;
  const auto run = [&] {
    result = detail::evaluate(learner, data, batch, nullptr, INT64_MAX, {}, {}, {.ranks = ranks});
  };
  if (ranks == nullptr)
    run();
  else
    detail::with_transfers(*ranks, run);
  return *result;
}
