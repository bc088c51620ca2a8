// smooth: SmoothQuant (Xiao et al. 2022, arXiv 2211.10438, section 4.2), alpha 0.5. Channel j between a norm of rows
// and the products that read it is divided by s_j = max|x_j|^0.5 / max|w_j|^0.5, so that large inputs cost fewer codes.
#include <algorithm>
#include <cmath>
#include <map>

#include "tools/norm_statistics.h"
#include "tools/ptq/rescale.h"

namespace bitgrad::detail {
namespace {

constexpr double kAlpha = 0.5;

ChannelScaling readers_of(Module& model, const inference::Graph& graph, inference::Value norm) {
  ChannelScaling scaling;
  scaling.before = graph[norm].layer;
  scaling.factor.assign(static_cast<size_t>(graph[norm].form.features()), 1.0);
  for (const inference::Node& node : graph.nodes()) {
    if (std::find(node.inputs.begin(), node.inputs.end(), norm) == node.inputs.end()) continue;
    scaling.readers.push_back(node.layer);
    if (!scaling.refused.empty()) continue;
    if (!std::holds_alternative<inference::Product>(node.operation))
      scaling.refused = concat("'", node.layer, "', which has no weights for its inputs, reads it");
    else
      scaling.refused = why_not_scaled(model, node);
  }
  if (scaling.readers.empty()) scaling.readers = {graph[norm].layer}, scaling.refused = "no layer reads it";
  return scaling;
}

// The largest magnitudes of the outputs of these layers.
void add_ranges(Learner& learner, const Tensor& x, std::map<std::string, std::vector<double>>& ranges) {
  predict_with(learner, x, [&](const std::string& path, const Tensor&, const Tensor& y) {
    const auto found = ranges.find(path);
    if (found == ranges.end()) return;
    const std::vector<double> values = y.on_host().elements();
    std::vector<double>& range = found->second;
    for (size_t i = 0; i < values.size(); ++i)
      range[i % range.size()] = std::max(range[i % range.size()], std::abs(values[i]));
  });
}

class Smooth final : public PtqMethod {
 public:
  std::string_view name() const override { return "smooth"; }
  std::string_view doc() const override {
    return "channels between a norm of rows and products, scaled to smaller inputs";
  }
  bool has_layer_step() const override { return false; }
  std::vector<PtqLayer> prepare(const FloatModels& models) const override {
    return keep_better(name(), models, smoothing_scalings(models.reference, models.samples));
  }
};

}  // namespace

std::vector<ChannelScaling> smoothing_scalings(Learner& learner, std::span<const SampleBatch> samples) {
  Module& model = learner.model();
  const inference::Graph graph = inference::lowered(model, *learner.input());
  std::vector<ChannelScaling> scalings;
  std::map<std::string, std::vector<double>> inputs;
  for (inference::Value at = 0; at <= graph.output(); ++at) {
    if (!std::holds_alternative<inference::RowNorm>(graph[at].operation)) continue;
    const ChannelScaling& s = scalings.emplace_back(readers_of(model, graph, at));
    inputs[s.before].resize(s.factor.size());
  }
  for (const SampleBatch& batch : samples) add_ranges(learner, batch.x, inputs);
  for (ChannelScaling& s : scalings) {
    if (!s.refused.empty()) continue;
    const auto channels = static_cast<int64_t>(s.factor.size());
    std::vector<double> weights(s.factor.size());
    for (const std::string& reader : s.readers) {
      const Tensor w = parameter_of(model, reader, "weight")->value().on_host();
      const auto range = column_ranges(columns_of(model, reader, channels), w.elements(), w.shape().cols());
      for (size_t j = 0; j < weights.size(); ++j) weights[j] = std::max(weights[j], range[j]);
    }
    for (size_t j = 0; j < weights.size(); ++j)
      if (const double x = inputs[s.before][j]; x > 0 && weights[j] > 0)
        s.factor[j] = std::pow(x, kAlpha) / std::pow(weights[j], 1 - kAlpha);
  }
  return scalings;
}

std::unique_ptr<PtqMethod> make_Smooth() { return std::make_unique<Smooth>(); }

}  // namespace bitgrad::detail
