// equalize: cross-layer equalization (Nagel et al. 2019, arXiv 1906.04721, section 4.1). Channel i between two products
// is divided by s_i = sqrt(r1_i / r2_i), r1_i and r2_i the largest magnitudes of the weights that make and read it, so
// that both become sqrt(r1_i r2_i). Of a product and a norm, r1_i is that of the weights times the norm's factor, which
// is what is divided. Channels of which one side is below 1e-3 of the largest stay (dead ones, whose biases would
// become the range of all). Repeated over all pairs until no factor is off by 1 %.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tools/ptq/rescale.h"

namespace bitgrad::detail {
namespace {

constexpr int kMostRounds = 50;
constexpr double kSettled = 0.01;
constexpr double kDead = 1e-3;

// max(s x, 0) = s max(x, 0), and the same of the largest and the mean of a window, for s > 0.
bool passes_scales(const inference::Node& node) {
  const auto* pointwise = std::get_if<inference::Pointwise>(&node.operation);
  return (pointwise != nullptr && pointwise->op == UnaryOp::relu) ||
         std::holds_alternative<inference::MaxPool>(node.operation) ||
         std::holds_alternative<inference::AvgPool>(node.operation) ||
         std::holds_alternative<inference::Reshape>(node.operation);
}

std::string what_stops(Module& model, const inference::Node& node) {
  const Module* at =
      model.find(std::string_view(node.layer).substr(std::min(node.layer.size(), model.path().size() + 1)));
  const std::string what = concat("'", node.layer, "' (", at != nullptr ? at->kind() : "input", ")");
  const auto* pointwise = std::get_if<inference::Pointwise>(&node.operation);
  if (pointwise != nullptr && pointwise->op == UnaryOp::hardtanh)
    return concat("the bounds of ", what, " are those of all channels and would cut scaled ones elsewhere");
  return concat(what, " before it does not give scaled outputs for scaled inputs");
}

struct Pair {
  ChannelScaling scaling = {};
  std::string product = {};       // the layer whose weights make the channels
  std::vector<double> norm = {};  // what a norm multiplies them by, without sign; empty: none is between
};

class Pairs {
 public:
  explicit Pairs(Learner& learner)
      : model_(learner.model()), graph_(inference::lowered(learner.model(), *learner.input())) {}

  std::vector<Pair> all() const {
    std::vector<Pair> pairs;
    for (const inference::Node& node : graph_.nodes()) {
      if (!std::holds_alternative<inference::Product>(node.operation) || reads_input(node)) continue;
      Pair& pair = pairs.emplace_back();
      pair.scaling.readers = {node.layer};
      pair.scaling.refused = find(node, pair);
      if (!pair.scaling.refused.empty()) pair.scaling.before.clear();
    }
    return pairs;
  }

 private:
  bool reads_input(const inference::Node& reader) const {
    inference::Value at = reader.inputs.front();
    while (passes_scales(graph_[at])) at = graph_[at].inputs.front();
    return std::holds_alternative<inference::Input>(graph_[at].operation);
  }
  std::string other_readers(inference::Value at) const {
    return graph_.readers(at) == 1 ? "" : concat("other layers read '", graph_[at].layer, "', too");
  }
  // Fills in the pair of a product and what is before it; why there is none.
  std::string find(const inference::Node& reader, Pair& pair) const {
    if (std::string why = why_not_scaled(model_, reader); !why.empty()) return why;
    inference::Value at = reader.inputs.front();
    std::vector<int64_t> widths{graph_[at].form.features()};
    for (; graph_.readers(at) == 1 && passes_scales(graph_[at]); at = graph_[at].inputs.front())
      widths.push_back(graph_[graph_[at].inputs.front()].form.features());
    if (std::string why = other_readers(at); !why.empty()) return why;
    pair.scaling.before = graph_[at].layer;
    if (const auto* values = std::get_if<inference::Normalize>(&graph_[at].operation)) {
      if (values->gamma.size() <= 1) return concat("'", graph_[at].layer, "' has one factor for all channels");
      for (size_t i = 0; i < values->gamma.size(); ++i)
        pair.norm.push_back(std::abs(static_cast<double>(values->gamma[i]) * static_cast<double>(values->inv[i])));
      at = graph_[at].inputs.front();
      if (std::string why = other_readers(at); !why.empty()) return why;
    }
    const inference::Node& product = graph_[at];
    if (!std::holds_alternative<inference::Product>(product.operation)) return what_stops(model_, product);
    if (std::string why = why_not_scaled(model_, product); !why.empty()) return why;
    const int64_t channels = product.form.features();
    for (const int64_t width : widths)
      if (width % channels != 0) return "a reshape before it mixes channels";
    if (columns_of(model_, reader.layer, channels).part < channels && widths.front() != channels)
      return "a reshape before its groups changes channels";
    pair.product = product.layer;
    pair.scaling.factor.assign(static_cast<size_t>(channels), 1.0);
    return "";
  }

  Module& model_;
  const inference::Graph graph_;
};

// The weights of products in double while their rows and columns are scaled.
class Ranges {
 public:
  explicit Ranges(Module& model) : model_(model) {}

  // The factors that make the ranges of both sides of the pair equal; weights and pair have them then. Returns the
  // largest change.
  double equalize(const Pair& pair, std::vector<double>& factor) {
    Weight &rows = weight_of(pair.product), &reader = weight_of(pair.scaling.readers.front());
    const auto channels = static_cast<int64_t>(factor.size());
    const ColumnChannels columns = columns_of(model_, pair.scaling.readers.front(), channels);
    const std::vector<double> r2 = column_ranges(columns, reader.values, reader.cols);
    std::vector<double> r1(factor.size()), change(factor.size(), 1.0);
    for (size_t i = 0; i < factor.size(); ++i) {
      for (int64_t k = 0; k < rows.cols; ++k) r1[i] = std::max(r1[i], std::abs(rows.at(static_cast<int64_t>(i), k)));
      if (!pair.norm.empty()) r1[i] *= pair.norm[i] / factor[i];
    }
    const double dead1 = kDead * *std::max_element(r1.begin(), r1.end());
    const double dead2 = kDead * *std::max_element(r2.begin(), r2.end());
    double largest = 0;
    for (size_t i = 0; i < factor.size(); ++i) {
      if (r1[i] > dead1 && r2[i] > dead2) change[i] = std::sqrt(r1[i] / r2[i]);
      factor[i] *= change[i];
      largest = std::max(largest, std::abs(change[i] - 1));
      for (int64_t k = 0; k < rows.cols && pair.norm.empty(); ++k) rows.at(static_cast<int64_t>(i), k) /= change[i];
    }
    for (int64_t i = 0; i < static_cast<int64_t>(reader.values.size()); ++i)
      reader.values[static_cast<size_t>(i)] *=
          change[static_cast<size_t>(columns.of(i / reader.cols, i % reader.cols))];
    return largest;
  }

 private:
  struct Weight {
    std::vector<double> values = {};
    int64_t cols = 0;
    double& at(int64_t row, int64_t k) { return values[static_cast<size_t>(row * cols + k)]; }
  };
  Weight& weight_of(const std::string& product) {
    const auto [at, is_new] = weights_.try_emplace(product);
    if (is_new) {
      const Tensor w = parameter_of(model_, product, "weight")->value().on_host();
      at->second = {w.elements(), w.shape().cols()};
    }
    return at->second;
  }

  Module& model_;
  std::map<std::string, Weight> weights_;
};

class Equalize final : public PtqMethod {
 public:
  std::string_view name() const override { return "equalize"; }
  std::string_view doc() const override {
    return "channels between two products, scaled to equal ranges of both weights";
  }
  bool has_layer_step() const override { return false; }
  std::vector<PtqLayer> prepare(const FloatModels& models) const override {
    return keep_better(name(), models, equalizing_scalings(models.reference));
  }
};

}  // namespace

std::vector<ChannelScaling> equalizing_scalings(Learner& learner) {
  std::vector<Pair> pairs = Pairs(learner).all();
  Ranges ranges(learner.model());
  double change = 1;
  for (int round = 0; round < kMostRounds && change >= kSettled; ++round) {
    change = 0;
    for (Pair& pair : pairs)
      if (pair.scaling.refused.empty()) change = std::max(change, ranges.equalize(pair, pair.scaling.factor));
  }
  std::vector<ChannelScaling> scalings;
  scalings.reserve(pairs.size());
  for (Pair& pair : pairs) scalings.push_back(std::move(pair.scaling));
  return scalings;
}

std::unique_ptr<PtqMethod> make_Equalize() { return std::make_unique<Equalize>(); }

}  // namespace bitgrad::detail
