#include "bench_step.h"

#include "bitgrad/base/rng.h"
#include "bitgrad/ops/ops.h"
#include "shared/given_gradient.h"

namespace bitgrad::bench {

namespace {

Tensor random_tensor(const char* site, const Shape& shape, float size) {
  const RandomStream draws{1, Purpose::kUser, site_id(site), 0};
  const Tensor t = Tensor::empty(shape, dtypes::fp32, MemoryKind::kBatch, Device::cpu());
  for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = (draws.uniform(static_cast<uint64_t>(i)) * 2 - 1) * size;
  return current_device().is_cpu() ? t : t.to_device(current_device(), MemoryKind::kBatch);
}

LayerSpec quantize_spec(DType dtype) {
  LayerSpec spec;
  spec.kind = "quantize";
  spec.activation.emplace();
  spec.activation->spec.dtype = dtype;
  const bool signs = dtype.kind() == DTypeKind::kSign;
  spec.activation->spec.scheme = signs ? "binary" : "absmax";
  spec.activation->spec.ste = signs ? SteRule::kClip : SteRule::kIdentity;  // absmax clips nothing
  if (!signs) spec.activation->spec.granularity = Granularity::token();
  return spec;
}

LayerSpec linear_spec(DType dtype, int64_t out, const Options& options) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes["out"] = out;
  spec.attributes["bias"] = false;
  spec.product.gx = spec.product.gw = options.grad;
  spec.product.rounding = options.rounding;
  spec.weight.quant.emplace();
  spec.weight.quant->dtype = dtype;
  const bool signs = dtype.kind() == DTypeKind::kSign;
  spec.weight.quant->scheme = signs ? "binary" : "absmax";
  spec.weight.quant->ste = SteRule::kIdentity;
  if (!signs) spec.weight.quant->granularity = Granularity::channel(0);
  spec.weight.init = {"uniform", -1, 1};
  if (options.master != MasterKind::kNone) spec.weight.latent_clamp = 1.0f;
  spec.weight.master = options.master;
  if (options.master == MasterKind::kNone && signs) spec.weight.optimizer = "bop";
  return spec;
}

// The layer between an input that requires a gradient and an output whose gradient is given.
class Hidden final : public Module {
 public:
  Hidden(const Case& what, const Options& options, bool input_gradient)
      : input_gradient_(input_gradient),
        gy_(random_tensor("gy", {what.batch, what.widths[1]}, 0.01f)),
        layers_(make_sequential(
            {quantize_spec(what.layer.activations), linear_spec(what.layer.weights, what.widths[1], options)},
            what.widths[0])) {
    add_child("layers", layers_);
  }
  Var forward(const Var& x) override {
    gx_.clear();
    const Tape* tape = Tape::current();
    const Var input = tape != nullptr && input_gradient_ ? Tape::current()->leaf(x.value(), &gx_, dtypes::fp32) : x;
    return apply<GivenGradient>({layers_->forward(input)}, gy_, Shape{x.shape()[0], 1});
  }
  Form plan(const Form& in, PlanRequests& requests) override {
    Form form = in;
    form.grad = input_gradient_;
    return layers_->plan(form, requests).with_features(1);
  }

 private:
  bool input_gradient_;
  Tensor gy_;
  AccumulateSink gx_;
  std::shared_ptr<Sequential> layers_;
};

// The FINN nets: quantize, dropout, three times [linear, batch norm, quantize, dropout], linear, tensor norm.
std::shared_ptr<Module> make_net(const Case& what, const Options& options) {
  std::vector<LayerSpec> list;
  const auto add = [&](const char* kind) -> LayerSpec& {
    list.emplace_back().kind = kind;
    return list.back();
  };
  const auto quantize_and_drop = [&] {
    list.push_back(quantize_spec(what.layer.activations));
    add("dropout").attributes["p"] = 0.2;
  };
  quantize_and_drop();
  for (size_t i = 1; i + 1 < what.widths.size(); ++i) {
    list.push_back(linear_spec(what.layer.weights, what.widths[i], options));
    add("batch_norm");
    quantize_and_drop();
  }
  list.push_back(linear_spec(what.layer.weights, what.widths.back(), options));
  add("tensor_norm");
  return make_sequential(list, what.widths.front());
}

// A loss that ignores its labels.
Var sum_of(const Var& y, const Tensor&) { return sum(y); }

OptimizerSpec adam(const Options& options) {
  OptimizerSpec spec;
  spec.name = "adam";
  spec.moments = options.moments;
  if (options.norm_clip) spec.clip_norm = 1.0f;
  return spec;
}

bool updates(Without without) { return without != Without::kUpdate && without != Without::kWeightGradients; }

RequantPolicy policy(const Options& options, Without without) {
  constexpr int64_t kNever = 1 << 20;
  RequantPolicy policy;
  policy.accumulate = policy.every = options.accumulate;
  if (without == Without::kRequantize) policy.every *= kNever;
  if (!updates(without)) policy.accumulate = policy.every = 2 * options.accumulate;
  return policy;
}

}  // namespace

TimeBase time_base(const Options& options) {
  return options.device.is_cpu() ? time_base(options.threads) : TimeBase::kWall;
}

TrainStep::TrainStep(const Case& what, const Options& options, Without without, std::shared_ptr<Module> model,
                     const LossFunction& loss, const OptimizerSpec& optimizer)
    : TrainStep(options, updates(without)) {
  const bool net = !what.net.empty();
  microbatches_ = options.accumulate;
  x_ = random_tensor("x", {what.batch, what.widths.front()}, net ? 1.0f : 1.5f);
  for (int64_t i = 0; i < what.batch; ++i) labels_.push_back(net ? static_cast<int32_t>(i % what.widths.back()) : 0);
  const LossFunction timed = [this, loss](const Var& logits, const Tensor& labels) {
    device_backend(current_device()).synchronize();
    forward_ += now_ns(base_) - start_;
    return loss(logits, labels);
  };
  // A recorded step cannot be synchronized halfway.
  learner_ = std::make_unique<Learner>(
      std::move(model), options.recorded ? loss : timed, optimizer, policy(options, without),
      [](int64_t) { return 1e-4f; }, 1);
  learner_->set_recorded(options.recorded);
  learner_->plan({.input = {.sample = {what.widths.front()}},
                  .outputs = net ? what.widths.back() : 1,
                  .train_samples = what.batch});
}

void TrainStep::step() {
  forward_ = 0;
  for (int64_t i = 0; i < microbatches_; ++i) {
    start_ = now_ns(base_);
    microbatch();
  }
  if (!updates_) learner_->drop_window();
  device_backend(current_device()).synchronize();
  forward_ns_.push_back(forward_);
}

bool TrainStep::fused() const {
  for (const Parameter* p : learner_->model().parameters())
    if (p->low_bit() && p->grad().defined()) return false;
  return true;
}

std::unique_ptr<TrainStep> our_step(const Case& what, const Options& options, Without without) {
  const bool net = !what.net.empty();
  std::shared_ptr<Module> model;
  if (net)
    model = make_net(what, options);
  else
    model = std::make_shared<Hidden>(what, options, without != Without::kInputGradient);
  return std::make_unique<TrainStep>(what, options, without, std::move(model),
                                     net ? find_loss("squared_hinge") : LossFunction(&sum_of), adam(options));
}

}  // namespace bitgrad::bench
