#include "train/train_state.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/ops/ops.h"

#include "kernels/flag.h"
#include "train/averages.h"
#include "train/phases.h"
#include "train/pieces.h"
#include "train/reducer.h"
#include "train/step_graphs.h"
#include "train/window_sums.h"

namespace bitgrad::detail {
namespace {

// Checks that the model returns scores, or a value, for each position of the target.
void check_outputs(const Shape& sample, const TargetForm& target) {
  const std::vector<int64_t>& dims = sample.dims();
  const bool fits = target.classes > 0
                        ? !dims.empty() && Shape(std::vector<int64_t>(dims.begin(), dims.end() - 1)) == target.shape
                        : sample.numel() == target.shape.numel();
  require(fits, "model", "the model returns ", sample, " per sample, the targets are ",
          target.classes == 0 ? concat("values ", target.shape)
          : target.shape.rank() == 0
              ? "one class for each sample. For one row of scores per sample make vectors of "
                "its axes: model.flat: true, embedding: {flat: true}"
              : concat("a class for each of ", target.shape,
                       ". For one row of scores per position keep the position axis, from "
                       "embedding: {flat: false} on; for samples of values by model.flat: false"));
}

}  // namespace

void check_codes_that_train(const Parameter& p, const RequantPolicy& policy) {
  if (p.has_master() || !p.trains() || policy.every == policy.accumulate) return;
  fail("requantize_every", "parameter '", p.path(), "' has no master, so its codes change at every optimizer step of ",
       policy.accumulate, " microbatches: got requantize_every ", policy.every, ". Set it to ", policy.accumulate,
       ", or add a master to the parameter");
}

double Window::weight() const { return std::accumulate(weights.begin(), weights.end(), 0.0); }

TrainState::TrainState(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer,
                       const RequantPolicy& policy, std::function<float(int64_t)> learning_rate, uint64_t seed,
                       LearnerUse use)
    : model(std::move(model)),
      loss(std::move(loss)),
      optimizer(make_optimizer(optimizer)),
      policy(policy),
      learning_rate(std::move(learning_rate)),
      phases(std::make_unique<Phases>(*this)) {
  check_requant(policy);
  state.seed = seed;
  state.read_only = use == LearnerUse::kPredict;
  this->model->initialize(kModelRoot, state);
  mark_hidden_weights(*this->model);
  parameters = this->model->parameters();
  for (const Parameter* p : parameters)
    if (p->value().defined() && p->value().device() != device)
      fail_with(ErrorCode::kDevice, "Learner", "parameter '", p->path(), "' is on ", to_string(p->value().device()),
                ", the current device is ", to_string(device), ". Build the model and its learner on one device");
  for (const Parameter* p : parameters) check_codes_that_train(*p, policy);
  this->optimizer->attach(parameters);
}
TrainState::~TrainState() = default;

bool TrainState::usable() const { return !optimizer->partially_updated() && !phases->entering(); }

void TrainState::check_usable() const {
  const DeviceGuard guard(device);
  poll_errors();
  require_usable();
}

void TrainState::require_usable() const {
  require(!phases->entering(), "Learner", "an Error ended the entry of phase ", phases->now(), " at optimizer step ",
          state.step, ": its layers are between two phases. Resume from the last checkpoint with a new learner.");
  require(usable(), "Learner", "an Error ended optimizer step ", state.step,
          " in the middle of its updates: masters and codes are between two steps. Resume from the last checkpoint "
          "with a new "
          "learner; optim.fused: off detects non-finite gradients before any update.");
}

void TrainState::require_trainable(std::string_view what) const {
  require(!state.read_only, what,
          "the model was opened to predict: it has no masters and no state of the optimizer. Resume its run "
          "(bitgrad train --resume), or start another one from it (model.init_from)");
}

void TrainState::require_values() {
  if (all_set) return;
  for (const Parameter* p : model->parameters()) p->require_values("Learner");
  all_set = true;
}

std::optional<RequantKey> TrainState::due_after(int64_t microbatches) const {
  if (!requant_due(policy, since_requantize + microbatches)) return std::nullopt;
  return RequantKey{state.seed, state.step + 1};
}

void TrainState::check_flags(const char* when) {
  on_poll([this, when] {
    const std::vector<std::string> raised = state.flags.raised();
    const std::optional<double> loss = std::exchange(window.bad_loss, std::nullopt);
    if (raised.empty() && !loss) return;
    state.flags.clear();
    if (raised.empty())
      fail_with(ErrorCode::kNonFinite, "non-finite", "the loss is ", *loss, ' ', when, " at optimizer step ",
                state.step, ". ", checkpoint::describe_not_finite(*this),
                " A smaller learning rate or a smaller initialization may help.");
    std::string names;
    for (const std::string& n : raised) names += (names.empty() ? "" : ", ") + n;
    fail_with(ErrorCode::kNonFinite, "non-finite", "NaN or Inf ", when, " at optimizer step ", state.step,
              " in the input of: ", names);
  });
}

void TrainState::requantize() {
  for (Parameter* p : parameters) p->requantize(state.seed, state.step);
  since_requantize = 0;
}

void TrainState::gather_state(Optimizer::Place place) {
  optimizer->gather_state(place, [&](const Parameter& p) {
    if (!average) return Tensor();
    const auto at = average->state().find(p.path() + kAverageEnd);
    return at != average->state().end() ? at->second : Tensor();
  });
}

void TrainState::require_whole(std::string_view what) const {
  require(optimizer->whole(), what,
          "rows of masters and moments are on other ranks: call Learner::gather_state on all ranks first");
}

void TrainState::follow_average() {
  const DeviceGuard guard(device);
  if (average) average->follow(*model);
}

void TrainState::with_average(const std::function<void()>& run) {
  const DeviceGuard guard(device);
  forget_recorded();
  gather_state();
  follow_average();
  struct Held {
    Module& of;
    const ModelSnapshot snapshot{of};
    ~Held() { snapshot.restore(of); }
  } const held{*model};
  average->put_into(*model, state.seed, state.step);
  run();
}

void TrainState::forget_recorded() {
  if (graphs) graphs->forget();
}

void TrainState::plan_and_check(const PlanSpec& spec) {
  integer.reset();
  integer_of = 0;
  inference::integer_rule(*model);  // throws where only some layers are
  for (const bool training : {true, false}) {
    Form in;
    in.samples = training ? spec.train_samples : spec.eval_samples;
    in.sample = spec.input.sample;
    in.dtype = spec.input.dtype;
    in.values = spec.input.values;
    in.training = training;
    if (training) in.least_samples = spec.least_samples;
    const Form out = model->plan(in);
    require(out.dtype == dtypes::fp32, "model", "the last layer returns ", out.dtype,
            ", the loss needs fp32. End with a linear, norm or dequantize layer");
    const bool values = spec.target && spec.target->classes == 0;
    // A model may have more scores than the data have ids, e.g. with a padded vocabulary: those classes never occur.
    const bool fits = spec.input.ids > 0 && !values ? out.features() >= spec.outputs : out.features() == spec.outputs;
    require(spec.outputs == 0 || fits, "model", "the last layer returns ", out.features(), " values, the data has ",
            spec.outputs, values ? " values per sample" : " classes", ". Give that layer ", spec.outputs,
            " outputs (of a preset: model.keys)");
    loss.check_outputs(out.features());
    if (spec.target) check_outputs(out.sample, *spec.target);
  }
}

Tensor TrainState::as_planned(const Tensor& x) const {
  if (!plan || x.shape().rank() < 1 || x.quant() || !x.contiguous()) return x;
  Form form = plan->input;
  form.samples = x.shape()[0];
  const Shape planned = form.shape();
  return planned == x.shape() || planned.numel() != x.numel() ? x : x.reshape(planned);
}

void TrainState::set_window_sum(WindowSum sum) {
  require(window.microbatches == 0, "Learner", "the order of sums changes inside a window");
  require(!ranks || sum != WindowSum::kRunning, "Learner", "ranks add their gradients in a tree: got sums ",
          enum_name(sum));
  forget_recorded();
  const bool tree = ranks || (sum == WindowSum::kTree && policy.accumulate > 1);
  sums = tree ? std::make_unique<WindowSums>() : nullptr;
}

void TrainState::set_observer_update(ObserverUpdate update) {
  require(window.microbatches == 0, "Learner", "the update of observers changes inside a window");
  require(!ranks || update != ObserverUpdate::kMicrobatch, "Learner",
          "observers of several ranks follow training at the end of a step: got quant.observer_update microbatch, "
          "expected auto or window");
  const DeviceGuard guard(device);
  observer_update = update;
  forget_recorded();
  state.observed_ranges.reset();
  if (!ranks && update != ObserverUpdate::kWindow) return;
  state.observed_ranges.emplace();
  if (!plan) return;
  plan_and_check(*plan);  // refuses observers that keep more than a range, here and in later phases
  phases->try_all();
}

void TrainState::rebind() {
  parameters = model->parameters();
  all_set = false;
  forget_recorded();
  if (sums) sums->drop();
  for (const Parameter* p : parameters) check_codes_that_train(*p, policy);
  optimizer->attach(parameters);
  for (Parameter* p : parameters) p->memory().forget_layouts();  // of other phases; kernel choice depends on them
  if (plan) plan_and_check(*plan);
}

Tensor copy_with_scales(const Tensor& codes) {
  auto params = std::make_shared<QuantParams>(*codes.quant());
  for (auto* part : {&params->scale, &params->zero, &params->offset, &params->statistic})
    if (*part) *part = std::make_shared<const Tensor>((*part)->clone(MemoryKind::kQuantState));
  return codes.without_quant().clone(MemoryKind::kQuantState).with_quant(std::move(params));
}

ModelSnapshot::ModelSnapshot(Module& model) {
  for (const Parameter* p : model.parameters()) {
    if (!p->has_values()) continue;
    ParameterState held;
    if (p->has_master()) held.master = p->master().clone(MemoryKind::kWorkspace);
    if (p->low_bit()) held.value = copy_with_scales(p->value());
    parameters_[p->path()] = std::move(held);
  }
  for (const Module::Buffer& b : model.buffers()) buffers_[b.path] = b.tensor.clone(MemoryKind::kWorkspace);
}

void ModelSnapshot::restore(Module& model) const {
  for (Parameter* p : model.parameters()) {
    const auto held = parameters_.find(p->path());
    ensure(held != parameters_.end() || p->read_only(), "ModelSnapshot", "parameter '", p->path(), "' is new");
    if (held != parameters_.end()) p->restore(held->second);
  }
  for (const Module::Buffer& b : model.buffers()) b.tensor.copy_from(buffers_.at(b.path));
}

}  // namespace bitgrad::detail
