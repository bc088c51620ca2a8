// Batch norm (one statistic per feature) and tensor norm (one for the whole tensor): parameters gamma (1) and beta (0),
// buffers running_mean and running_var.
#include "nn/layers/norm.h"

#include <cmath>

#include "bitgrad/nn/layers.h"
#include "nn/values.h"
#include "ops/norm.h"

namespace bitgrad {

Norm::Norm(std::string_view name, Op op, bool per_column, float eps, float momentum)
    : name_(name),
      op_(op),
      per_column_(per_column),
      gamma_(add_parameter("gamma", ParameterSpec{.init = {"constant", 1, 0}})),
      beta_(add_parameter("beta", ParameterSpec{.init = {"constant", 0, 0}})) {
  require(eps > 0, name, "eps must be above 0: got ", eps);
  require(momentum >= 0 && momentum <= 1, name, "momentum must be in [0, 1]: got ", momentum);
  options_.eps = eps;
  options_.momentum = momentum;
}

void Norm::allocate() {
  if (options_.running_mean.defined()) return;
  options_.running_mean = add_buffer("running_mean", gamma_.shape(), 0);
  options_.running_var = add_buffer("running_var", gamma_.shape(), 1);
}

// A recomputed block has already updated its running statistics in the first run.
NormOptions Norm::options_now(bool training) const {
  NormOptions options = options_;
  options.training = training && !holds_statistics();
  if (state().recomputing) options.running_mean = options.running_var = Tensor();
  auto& held = mutable_state().batch_statistics;
  if (!held || !options.training || state().recomputing) return options;
  for (Tensor* t : {&options.running_mean, &options.running_var})  // with momentum 1, the batch's own: -0 + x is x
    *t = Tensor::full(gamma_.shape(), dtypes::fp32, -0.0, MemoryKind::kWorkspace);
  held->push_back({path(), options.momentum, options.running_mean, options.running_var});
  options.momentum = 1;
  return options;
}

Var Norm::forward(const Var& x) {
  const NormOptions options = options_now(state().training);
  const auto f = [&](const Var& in) { return op_(in, gamma_.read(), beta_.read(), options); };
  return x.dtype() == dtypes::int32 ? cast(f(x), y_) : detail::in_values(x, y_, f);
}

bool Norm::returns_signs(const Tensor& x) const {
  const Tensor& gamma = gamma_.value();
  return x.dtype() == dtypes::fp32 && y_ == dtypes::fp32 && !x.quant() && x.shape().rank() >= 2 && x.contiguous() &&
         x.device() == current_device() && gamma.device() == current_device() &&
         (!per_column_ || x.cols() == gamma.numel());
}

Tensor Norm::signs(const Tensor& x, std::shared_ptr<const QuantParams> params, uint32_t* flags) {
  const Tensor in[] = {x, gamma_.value(), beta_.value()};
  return norm_signs(name_, per_column_, in, options_now(false), std::move(params), flags);
}

bool Norm::trains_in_one_pass(const Var& x) const {
  const bool of_batch = !(state().training && holds_statistics());
  return of_batch && per_column_ && current_device().is_cpu() && returns_signs(x.value()) &&
         x.grad_dtype() == dtypes::fp32;
}

Var Norm::training_signs(const Var& x, std::shared_ptr<const QuantParams> params, uint32_t* flags, bool clip,
                         const PoolOptions* pool) {
  return batch_norm_signs(x, gamma_.read(), beta_.read(), options_now(true), {std::move(params), flags, clip, pool});
}

bool Norm::adds_hardtanh(const Var& x, const Var& b) const {
  return trains_in_one_pass(x) && normalizes_before_hardtanh(x, b);
}

Var Norm::add_hardtanh(const Var& x, const Var& b) {
  return batch_norm_add_hardtanh(x, gamma_.read(), beta_.read(), b, options_now(state().training));
}

void Norm::check_rows() const {
  fail(name_, "the model is causal, and this layer uses statistics of the whole batch, including later positions. Use ",
       "layer_norm or rms_norm");
}

Form Norm::plan(const Form& in, PlanRequests&) {
  const bool integers = per_column_ && in.dtype == dtypes::int32;
  require(integers || detail::is_values(in.dtype), name_, "needs fp32 input, got ", in.dtype,
          in.dtype == dtypes::int32 ? ". Put dequantize before it" : ". Put it before the quantizer");
  const Granularity g = in.scales ? in.scales->granularity : Granularity{};
  require(!integers || g == Granularity::tensor() || g == Granularity::channel(1), name_, "got int32 with scales per ",
          g, ", which differ within a feature: expected per tensor or channel(1). Put dequantize before it");
  const bool one_value = in.least_samples * in.sample.numel() == (per_column_ ? in.features() : 1);
  require(holds_statistics() || !one_value, name_, "a training batch of ", in.least_samples,
          " sample gives each statistic one value, and the variance of one value is not defined. "
          "Leave out the samples of an epoch that do not fill a batch, or join them to the batch before (batch.last: "
          "drop or join), or change batch.micro");
  const Shape statistics{per_column_ ? in.features() : 1};
  gamma_.describe(statistics);
  beta_.describe(statistics);
  Form out = in;
  out.dtype = y_ = in.float_output();
  out.scales.reset();
  out.grad = in.grad || gamma_.trains() || beta_.trains();
  return out;
}

// Batch norm of int32 has the same bits as batch norm of its dequantized values.
inference::Value Norm::lower(inference::Graph& graph, inference::Value x) {
  if (graph[x].form.dtype == dtypes::int32)
    x = detail::add_node(graph, path(), inference::Dequantize{}, x, detail::values_like(graph[x].form, dtypes::fp32));
  inference::Normalize norm;
  norm.mean = detail::floats_of(options_.running_mean);
  for (const float var : detail::floats_of(options_.running_var))
    norm.inv.push_back(1.0f / std::sqrt(var / 1.0f + options_.eps));
  norm.gamma = detail::floats_of(gamma_.value());
  norm.beta = detail::floats_of(beta_.value());
  return detail::add_node(graph, path(), std::move(norm), x, detail::values_like(graph[x].form, y_));
}

namespace {

LayerKind norm_kind(const char* name, const char* doc, Norm::Op op, bool per_column, const char* eps) {
  using Type = Key::Type;
  return {.name = std::string(name),
          .doc = doc,
          .keys = {{"eps", Type::kNumber, "[1e-12, 1]", eps, "added to the variance"},
                   {"momentum", Type::kNumber, "(0, 1]", "0.1", "part of the new value in the running statistics"}},
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [name, op, per_column](const LayerSpec& spec) {
            return std::make_shared<Norm>(name, op, per_column, static_cast<float>(spec.attributes.number("eps")),
                                          static_cast<float>(spec.attributes.number("momentum")));
          }};
}

}  // namespace

LayerKind batch_norm_kind() {
  return norm_kind("batch_norm", "normalizes each feature over the batch", batch_norm, /*per_column=*/true, "1e-5");
}
LayerKind tensor_norm_kind() {
  return norm_kind("tensor_norm", "normalizes the whole tensor", tensor_norm, /*per_column=*/false, "1e-4");
}

}  // namespace bitgrad
