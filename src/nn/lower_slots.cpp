// What slots and activation quantizers compute in evaluation (nn/inference.h).
#include <algorithm>
#include <limits>

#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/quantizable.h"
#include "nn/activation_quantizer.h"
#include "nn/values.h"
#include "ops/integer_product.h"
#include "quant/values.h"

namespace bitgrad {
namespace {

std::vector<int32_t> ints_of(const Tensor& t) {
  std::vector<int32_t> out;
  for (const double x : t.elements()) out.push_back(static_cast<int32_t>(x));
  return out;
}

// Fills in the constants of the code rule, as the kernel reads them.
void fill_rule(inference::Quantize& q, const Quantizer& quantizer, const std::shared_ptr<const QuantParams>& params,
               int64_t features) {
  const DeviceGuard host(Device::cpu());  // as params
  const CodeRange range = quantizer.code_range(q.spec);
  q.rule = range.rule;
  q.lo = range.lo;
  q.hi = range.hi;
  if (q.dynamic) return;
  const Tensor like = Tensor::zeros({1, features}, dtypes::fp32, MemoryKind::kWorkspace).with_quant(params);
  const detail::KernelScales scales(range, like);
  const ScaleMap& map = scales.map();
  const int64_t count = map.col_step == 0 ? 1 : features;
  if (map.scale != nullptr) q.scale.assign(map.scale, map.scale + count);
  if (map.offset != nullptr) q.shift.assign(map.offset, map.offset + count);
  if (map.zero != nullptr) q.zero.assign(map.zero, map.zero + count);
}

}  // namespace

// Made where the parts or the observer are, and brought to the host.
std::shared_ptr<const QuantParams> ActivationQuantizer::constant_params() const {
  Device own = learned_.empty() ? Device::cpu() : learned_[0]->value().device();
  if (learned_.empty() && observer_)
    for (const Observer::State& part : observer_->state())
      if (part.tensor.defined()) own = part.tensor.device();
  std::shared_ptr<const QuantParams> params;
  {
    const DeviceGuard guard(own);
    params = own_params();
  }
  if (!params || own.is_cpu()) return params;
  QuantParams host = *params;
  for (auto* part : {&host.scale, &host.zero, &host.offset, &host.statistic})
    if (*part) *part = std::make_shared<const Tensor>((*part)->on_host());
  return std::make_shared<const QuantParams>(std::move(host));
}

std::shared_ptr<const QuantParams> ActivationQuantizer::own_params() const {
  if (!learned_.empty()) {
    require(has_first_values(), kind(), "its learned step was never set: train it before it is exported.");
    std::vector<Tensor> parts;
    for (const Parameter* p : learned_) parts.push_back(p->value());
    return std::make_shared<const QuantParams>(quantizer_.params_of(quant_.spec, parts));
  }
  if (const auto params = observed(quant_.spec)) return params;
  if (!quantizer_.constant_params(quant_.spec)) return nullptr;
  return std::make_shared<const QuantParams>(
      quantizer_.fit(quant_.spec, Tensor::zeros({1, features_}, dtypes::fp32, MemoryKind::kWorkspace)));
}

inference::Value ActivationQuantizer::lower(inference::Graph& graph, inference::Value x) {
  require(mode_.quantization != QuantSwitch::kOff, kind(),
          "quantization is switched off. Convert the model first: bitgrad convert.");
  const auto params = constant_params();
  Form form = graph[x].form;
  const int64_t features = form.features();
  form.dtype = quant_.spec.dtype;
  form.scales = scale_form(quant_.spec);
  QuantSpec spec = quant_.spec;
  spec.rounding = Rounding::kNearest;
  if (graph[x].form.dtype != dtypes::int32) {
    inference::Quantize q{.spec = spec, .dynamic = params == nullptr};
    fill_rule(q, quantizer_, params, features);
    return detail::add_node(graph, path(), std::move(q), x, form, params);
  }
  require(params != nullptr && graph[x].params != nullptr, kind(),
          "of int32 finds its scale from each batch, so that what one sample gives depends on the others. Give it an "
          "observer, or a scheme that learns its step.");
  inference::Requantize q{.spec = spec, .lo = spec.dtype.info().qmin, .hi = spec.dtype.info().qmax};
  const float out = params->scale ? params->scale->to_vector()[0] : 1.0f;
  const std::shared_ptr<const Tensor> in = graph[x].params->scale;
  for (const float s : in ? in->to_vector() : std::vector<float>{1.0f})
    q.factor.push_back(std::min(s / out, std::numeric_limits<float>::max()));
  if (params->zero) q.zero = ints_of(*params->zero)[0];
  return detail::add_node(graph, path(), std::move(q), x, form, params);
}

namespace {

// Scale of each output of an integer product: float(sum) * (sx * sw).
std::shared_ptr<const QuantParams> product_params(const inference::Node& x, const Tensor& w) {
  const bool by_row = w.scale_map().per_row();
  require(x.params != nullptr || !x.form.scales, "integer_out",
          "the scale of x is found from each batch. Give its quantizer an observer, or use compute: packed.");
  const auto numbers = [](const std::shared_ptr<const Tensor>& t) {
    return t ? t->to_vector() : std::vector<float>{1.0f};
  };
  const std::vector<float> sx = numbers(x.params ? x.params->scale : nullptr);
  std::vector<float> s = numbers(w.quant() ? w.quant()->scale : nullptr);
  require(sx.size() == 1, "integer_out", "x has ", sx.size(), " scales, expected one per tensor.");
  for (float& each : s) each = sx[0] * each;
  QuantParams params;
  params.scheme = "product";
  params.granularity = by_row ? Granularity::channel(1) : Granularity::tensor();
  params.scale = std::make_shared<const Tensor>(
      Tensor::from(s, {static_cast<int64_t>(s.size())}, dtypes::fp32, MemoryKind::kBuffer));
  return std::make_shared<const QuantParams>(std::move(params));
}

}  // namespace

Tensor Quantizable::inference_weight() const {
  require(adapter_ == nullptr, "lower", "the layer has a low-rank adapter. Add it to the weight first: bitgrad merge.");
  require(on() || (!quant_.weight && !quant_.input), "lower",
          "quantization is switched off. Convert the model first: bitgrad convert.");
  const Tensor host = weight_.value().on_host();
  return host.dtype().is_code() ? host.clone(MemoryKind::kBuffer) : host;  // drops the layouts of kernels
}

inference::Value Quantizable::lower(inference::Graph& graph, inference::Value x, const Parameter* bias,
                                    const Conv2dOptions* options) {
  inference::Product product;
  product.weight = inference_weight();
  const std::string& layer = owner_.path();
  if (options != nullptr) x = detail::as_image_node(graph, layer, x);
  if (input_) x = in_layer(child_name(), [&] { return input_->lower(graph, x); });
  if (options != nullptr) product.conv = *options;
  if (bias != nullptr) product.bias = bias->value().on_host();
  Form form = graph[x].form;
  if (options == nullptr) {
    form = form.with_features(weight_.shape().rows());
  } else {
    const auto [h, w] = conv2d_output(form.sample[0], form.sample[1], *options);
    form.sample = {h, w, weight_.shape().rows()};
  }
  form.dtype = y_;
  form.scales.reset();
  if (quant_.compute != Compute::kIntegerOut) return detail::add_node(graph, layer, std::move(product), x, form);
  const auto params = product_params(graph[x], product.weight);
  if (product.bias.defined()) product.bias = detail::rounded_bias("lower", product.bias, *params);
  product.integer_out = true;
  form.dtype = dtypes::int32;
  form.scales = ScaleForm{params->granularity, false, false};
  return detail::add_node(graph, layer, std::move(product), x, form, params);
}

}  // namespace bitgrad
