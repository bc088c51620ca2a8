#include "tools/ptq/rescale.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "bitgrad/nn/adapter.h"
#include "bitgrad/ops/spatial.h"
#include "nn/activation_quantizer.h"
#include "tools/norm_statistics.h"
#include "train/train_state.h"

namespace bitgrad::detail {

Parameter* parameter_of(Module& model, std::string_view layer, std::string_view name) {
  const std::string path = concat(layer, ".", name);
  for (const auto& [at, p] : model.parameters_at(model.path()))
    if (at == path) return p;
  return nullptr;
}

namespace {

// The only weight of a layer; nullptr if it has none or several.
const Quantizable* only_slot(Module& model, std::string_view layer) {
  const Quantizable* found = nullptr;
  for (const Quantizable* slot : model.quantizables())
    if (slot->owner().path() == layer) {
      if (found != nullptr) return nullptr;
      found = slot;
    }
  return found;
}

bool shared_weight(Module& model, const Quantizable& slot) {
  const auto slots = model.quantizables();
  return slot.weight_owner() != nullptr || std::any_of(slots.begin(), slots.end(), [&](const Quantizable* other) {
           return other->weight_owner() == &slot;
         });
}

void replace(Parameter& p, const std::vector<double>& values) {
  p.restore({Tensor::from_elements(p.value().shape(), p.value().dtype(), values), {}});
}

}  // namespace

std::string why_not_scaled(Module& model, const inference::Node& product) {
  const Quantizable* slot = only_slot(model, product.layer);
  if (slot == nullptr) return concat("'", product.layer, "' has several weights");
  if (shared_weight(model, *slot)) return concat("'", product.layer, "' shares its weight with another layer");
  if (slot->adapter() != nullptr) return concat("'", product.layer, "' has an adapter");
  if (slot->weight().low_bit()) return concat("'", product.layer, "' is not in floats");
  const auto& conv = std::get<inference::Product>(product.operation).conv;
  if (conv && conv->pad_value != 0) return concat("'", product.layer, "' pads with ", conv->pad_value);
  return "";
}

ColumnChannels columns_of(Module& model, std::string_view product, int64_t channels) {
  const Quantizable& slot = *only_slot(model, product);
  const Shape& shape = slot.weight().shape();
  ColumnChannels columns{channels, shape.rows(), shape.cols()};
  if (slot.kind() != Quantizable::Kind::kConv) return columns;
  const int64_t groups = slot.owner().spec()->attributes.integer("groups");
  columns.rows_per_group = shape.rows() / groups;
  columns.part = channels / groups;
  return columns;
}

std::vector<double> column_ranges(const ColumnChannels& columns, const std::vector<double>& weights, int64_t cols) {
  std::vector<double> ranges(static_cast<size_t>(columns.channels));
  for (int64_t i = 0; i < static_cast<int64_t>(weights.size()); ++i) {
    double& range = ranges[static_cast<size_t>(columns.of(i / cols, i % cols))];
    range = std::max(range, std::abs(weights[static_cast<size_t>(i)]));
  }
  return ranges;
}

void apply_scaling(Learner& learner, const ChannelScaling& scaling) {
  Module& model = learner.model();
  const auto channels = static_cast<int64_t>(scaling.factor.size());
  for (const char* name : {"gamma", "beta", "weight", "bias"}) {
    Parameter* const p = parameter_of(model, scaling.before, name);
    if (p == nullptr) continue;
    std::vector<double> values = p->value().on_host().elements();
    const size_t row = values.size() / scaling.factor.size();
    for (size_t i = 0; i < values.size(); ++i) values[i] /= scaling.factor[i / row];
    replace(*p, values);
  }
  for (const std::string& reader : scaling.readers) {
    const ColumnChannels columns = columns_of(model, reader, channels);
    Parameter& weight = only_slot(model, reader)->weight();
    std::vector<double> values = weight.value().on_host().elements();
    const int64_t k = weight.shape().cols();
    for (int64_t i = 0; i < weight.shape().numel(); ++i)
      values[static_cast<size_t>(i)] *= scaling.factor[static_cast<size_t>(columns.of(i / k, i % k))];
    replace(weight, values);
  }
}

namespace {

// Squared errors of a layer's outputs and sums of the float ones, by output.
struct OutputSums {
  double error = 0, rows = 0;
  std::vector<double> y = {}, yy = {};

  void add(const Tensor& quantized, const Tensor& reference) {
    const std::vector<double> q = quantized.on_host().elements(), f = reference.on_host().elements();
    const auto o = static_cast<size_t>(reference.shape().cols());
    y.resize(o);
    yy.resize(o);
    for (size_t i = 0; i < f.size(); ++i) {
      error += (q[i] - f[i]) * (q[i] - f[i]);
      y[i % o] += f[i];
      yy[i % o] += f[i] * f[i];
    }
    rows += static_cast<double>(f.size() / o);
  }
  double relative() const {
    double spread = 0;
    for (size_t j = 0; j < y.size(); ++j) spread += yy[j] - y[j] * y[j] / rows;
    return error / std::max(spread, 1e-300);
  }
};

// A model that is quantized for a trial and gets its floats back.
class Trial {
 public:
  Trial(Learner& learner, const FloatModels& models) : learner_(learner), floats_(learner.model()) {
    set_quant_mode(learner.model(), {});
    change(models.spec);
    learner.calibrate(tensors_of(models.samples));
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  // An error of the trial ends the whole quantization, so that nobody reads the model then.
  void end() {
    PrepareSpec none;
    none.all = find_recipe("none");
    change(none);
    floats_.restore(learner_.model());
    forget_ranges(learner_.model());
  }

 private:
  void change(const PrepareSpec& spec) {
    prepare(learner_.model(), spec);
    learner_.plan_again();
    learner_.train_state().integer.reset();
  }
  static void forget_ranges(Module& module) {
    if (auto* q = dynamic_cast<ActivationQuantizer*>(&module))
      if (q->observer() != nullptr || !q->learned().empty()) q->values_replaced();
    for (Module* child : module.children()) forget_ranges(*child);
  }

  Learner& learner_;
  const ModelSnapshot floats_;
};

using Outputs = std::map<std::string, Tensor>;

// The outputs of layers, values, for a batch.
Outputs outputs_of(Learner& learner, const Tensor& x, const std::map<std::string, OutputSums>& layers) {
  Outputs outputs;
  predict_with(learner, x, [&](const std::string& path, const Tensor&, const Tensor& y) {
    if (layers.count(path) > 0) outputs[path] = y;
  });
  return outputs;
}

// How well the readers of a scaling give their outputs in the quantized model.
struct ReaderError {
  double error = 0;  // mean of the readers
  int64_t rows = 0;  // of inputs, of the first
};
std::vector<ReaderError> errors_of(std::string_view method, const FloatModels& models,
                                   const std::vector<ChannelScaling>& scalings) {
  std::map<std::string, OutputSums> sums;
  for (const ChannelScaling& s : scalings)
    for (const std::string& reader : s.readers) sums[reader];
  Trial trial(models.quantized, models);
  for (const SampleBatch& batch : models.samples) {
    const Outputs reference = outputs_of(models.reference, batch.x, sums),
                  quantized = outputs_of(models.quantized, batch.x, sums);
    for (auto& [layer, sum] : sums) {
      require(reference.count(layer) > 0 && quantized.count(layer) > 0, "quantize", "method ", method,
              " cannot measure '", layer, "': evaluation of this recipe does not run it by itself");
      sum.add(quantized.at(layer), reference.at(layer));
    }
  }
  trial.end();
  std::vector<ReaderError> errors;
  errors.reserve(scalings.size());
  for (const ChannelScaling& s : scalings) {
    double error = 0;
    for (const std::string& reader : s.readers) error += sums.at(reader).relative();
    errors.push_back(
        {error / static_cast<double>(s.readers.size()), static_cast<int64_t>(sums.at(s.readers.front()).rows)});
  }
  return errors;
}

PtqLayer described(std::string_view method, const ChannelScaling& scaling) {
  PtqLayer layer;
  layer.layer = scaling.before.empty() ? scaling.readers.front() : scaling.before + " -> " + scaling.readers.front();
  PtqStep& step = layer.steps.emplace_back();
  step.method = method;
  step.refused = scaling.refused;
  return layer;
}

}  // namespace

std::vector<PtqLayer> keep_better(std::string_view method, const FloatModels& models,
                                  std::vector<ChannelScaling> scalings) {
  std::vector<PtqLayer> refused, layers;
  std::vector<ChannelScaling> kept;
  for (ChannelScaling& s : scalings) {
    PtqLayer layer = described(method, s);
    (s.refused.empty() ? layers : refused).push_back(std::move(layer));
    if (s.refused.empty()) kept.push_back(std::move(s));
  }
  require(!kept.empty(), "quantize", "method ", method, " fits no layer of this model",
          refused.empty() ? std::string() : concat(": ", refused.front().steps.front().refused));
  const std::vector<ChannelScaling> all = kept;
  const std::vector<ReaderError> before = errors_of(method, models, all);
  const ModelSnapshot quantized(models.quantized.model()), reference(models.reference.model());
  std::vector<bool> used(all.size(), true);
  // Scalings change each other's errors: measured anew without those that were dropped.
  for (bool again = true; again;) {
    quantized.restore(models.quantized.model());
    reference.restore(models.reference.model());
    for (size_t i = 0; i < all.size(); ++i)
      if (used[i])
        for (Learner* learner : {&models.quantized, &models.reference}) apply_scaling(*learner, all[i]);
    again = false;
    if (std::none_of(used.begin(), used.end(), [](bool u) { return u; })) break;
    const std::vector<ReaderError> after = errors_of(method, models, all);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!used[i]) continue;
      PtqStep& step = layers[i].steps.front();
      step.before = layers[i].before = before[i].error;
      step.after = after[i].error;
      step.kept = used[i] = step.after < step.before;
      layers[i].after = step.kept ? step.after : step.before;
      again = again || !step.kept;
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    layers[i].rows = before[i].rows;
    layers[i].inputs = only_slot(models.quantized.model(), all[i].readers.front())->weight().shape().cols();
  }
  layers.insert(layers.end(), refused.begin(), refused.end());
  return layers;
}

}  // namespace bitgrad::detail
