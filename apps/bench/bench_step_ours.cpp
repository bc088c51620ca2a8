#include "bench_step.h"

#include "bitgrad/base/rng.h"
#include "bitgrad/ops/ops.h"

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

// y [n,o] -> zeros [n,1], with a given gradient gy of y: a loss that costs nothing.
struct GivenGradient {
  static constexpr std::string_view kName = "given_gradient";
  struct Saved {
    Tensor gy;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& gy) {
    s.gy = gy;
    return Tensor::zeros({in[0].rows(), 1}, dtypes::fp32);
  }
  static void backward(Saved& s, std::span<const Tensor>, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set(s.gy);
  }
};

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
    return apply<GivenGradient>({layers_->forward(input)}, gy_);
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

RequantPolicy policy(const Options& options, Without without) {
  constexpr int64_t kNever = 1 << 20;
  RequantPolicy policy;
  policy.accumulate = policy.every = options.accumulate;
  if (without == Without::kRequantize) policy.every *= kNever;
  if (without == Without::kUpdate) policy.accumulate = policy.every = 2 * options.accumulate;
  return policy;
}

}  // namespace

TimeBase time_base(const Options& options) {
  return options.device.is_cpu() ? time_base(options.threads) : TimeBase::kWall;
}

struct Ours::State {
  Without without;
  int64_t accumulate;
  bool net;
  Tensor x;
  std::vector<int32_t> labels;
  TimeBase base;
  double start = 0;
  std::vector<double> forward_ns;
  std::unique_ptr<Learner> learner;
};

Ours::Ours(const Case& what, const Options& options, Without without) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.without = without;
  s.accumulate = options.accumulate;
  s.net = !what.net.empty();
  s.x = random_tensor("x", {what.batch, what.widths.front()}, s.net ? 1.0f : 1.5f);
  s.labels.assign(static_cast<size_t>(what.batch), 0);
  for (size_t i = 0; s.net && i < s.labels.size(); ++i)
    s.labels[i] = static_cast<int32_t>(static_cast<int64_t>(i) % what.widths.back());
  s.base = time_base(options);
  LossFunction loss = [&s](const Var& logits, const Tensor& labels) {
    device_backend(current_device()).synchronize();
    s.forward_ns.push_back(now_ns(s.base) - s.start);
    return s.net ? squared_hinge(logits, labels) : sum(logits);
  };
  // A recorded step cannot be synchronized halfway.
  if (options.recorded) loss = s.net ? find_loss("squared_hinge") : LossFunction(&sum_of);
  std::shared_ptr<Module> model;
  if (s.net) {
    model = make_net(what, options);
  } else {
    model = std::make_shared<Hidden>(what, options, without != Without::kInputGradient);
  }
  s.learner = std::make_unique<Learner>(
      std::move(model), loss, adam(options), policy(options, without), [](int64_t) { return 1e-4f; }, 1);
  s.learner->set_recorded(options.recorded);
  s.learner->plan({.input = {.sample = {what.widths.front()}},
                   .outputs = s.net ? what.widths.back() : 1,
                   .train_samples = what.batch});
}

Ours::~Ours() = default;

void Ours::step() {
  State& s = *state_;
  for (int64_t i = 0; i < s.accumulate; ++i) {
    s.start = now_ns(s.base);
    s.learner->microbatch(s.x, s.labels);
  }
  if (s.without == Without::kUpdate) s.learner->drop_window();
  device_backend(current_device()).synchronize();
}

const std::vector<double>& Ours::forward_ns() const { return state_->forward_ns; }
void Ours::forget_times() { state_->forward_ns.clear(); }

bool Ours::recorded() const { return state_->learner->recorded_launches() > 0; }

bool Ours::fused() const {
  for (const Parameter* p : state_->learner->model().parameters())
    if (p->low_bit() && p->grad().defined()) return false;
  return true;
}

}  // namespace bitgrad::bench
