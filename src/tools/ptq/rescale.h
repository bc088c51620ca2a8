// Channels between layers, divided by numbers that the layers behind them multiply by: a float model computes the same,
// and a quantized one may lose less.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/nn/inference.h"
#include "tools/ptq/method.h"

namespace bitgrad::detail {

struct ChannelScaling {
  std::string before = {};                // the layer whose output channels are divided: a product or a norm
  std::vector<std::string> readers = {};  // the products whose inputs are multiplied
  std::string refused = {};               // why these layers do not fit; empty: they do
  std::vector<double> factor = {};        // [channels of `before`]
};

// The parameters of a layer, by the names that layers give them. nullptr: it has none of that name.
Parameter* parameter_of(Module& model, std::string_view layer, std::string_view name);
// Why inputs of this product cannot be scaled; "": they can.
std::string why_not_scaled(Module& model, const inference::Node& product);
// Which channel column k of a product's weight reads, of `channels`: an input of several pixels repeats them.
struct ColumnChannels {
  int64_t channels = 0, rows_per_group = 0, part = 0;  // part: inputs of a group of channels
  int64_t of(int64_t row, int64_t k) const { return (row / rows_per_group * part + k % part) % channels; }
};
ColumnChannels columns_of(Module& model, std::string_view product, int64_t channels);
// The largest magnitude of the weights [rows, cols] that read each channel.
std::vector<double> column_ranges(const ColumnChannels& columns, const std::vector<double>& weights, int64_t cols);

// gamma and beta, or rows of the weight and biases of `before`, and columns of the readers. Values are rounded to fp32.
void apply_scaling(Learner& learner, const ChannelScaling& scaling);
// Applies those that lower the error of the outputs of their readers once the model is quantized, to both copies. The
// error is that of PtqStep, with all other layers quantized, too. Throws Error if all are refused.
std::vector<PtqLayer> keep_better(std::string_view method, const FloatModels& models,
                                  std::vector<ChannelScaling> scalings);

// The pairs of method equalize and the norms of method smooth in a float model, with their factors.
std::vector<ChannelScaling> equalizing_scalings(Learner& learner);
std::vector<ChannelScaling> smoothing_scalings(Learner& learner, std::span<const SampleBatch> samples);

}  // namespace bitgrad::detail
