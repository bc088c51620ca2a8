// A method of quantization after training: what it does to the float model before it is quantized, to each layer, or to
// the quantized model afterwards. One file and one line of methods.inc each.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/quant/quantizer.h"
#include "bitgrad/tools/ptq.h"
#include "tools/ptq/products.h"

namespace bitgrad::detail {

// The inputs of a layer and the outputs that it should give, as sums over the rows of samples: [group of channels]. x:
// input of the quantized model, whose layers before are done; y: output of the float layer on its own input.
struct LayerSums {
  int64_t rows = 0;
  std::vector<Matrix> xx = {};              // [groups] of [k, k]: means of x x^T
  std::vector<Matrix> yx = {};              // [groups] of [o / groups, k]: means of y x^T
  std::vector<std::vector<double>> x = {};  // [groups] of [k]: means
  std::vector<double> y = {}, yy = {};      // [o]: means of y and y^2
};

// The grid of a weight: value = scale * (code - zero) + offset, codes lo .. hi; signs are -1 and 1.
struct CodeGrid {
  QuantSpec spec = {};
  int64_t lo = 0, hi = 0;
  bool signs = false;
  int64_t block = 0;    // columns that share a scale; [o, blocks] scales
  bool shared = false;  // one scale for all rows
  bool fixed = false;   // scales that do not follow from values
};

// What a step may change. Scales, zeros and offsets [o, blocks] (or 1 if shared); zeros and offsets empty: none.
struct LayerState {
  Matrix codes = {};
  std::vector<double> scales = {}, zeros = {}, offsets = {};
  std::vector<double> bias = {};  // empty: the layer has none
  bool searched = false;          // scales come from a search, not from the scheme
};

struct LayerData {
  std::string layer = {};
  Matrix w = {};  // what values are fitted to, [o, k]
  int64_t groups = 1;
  CodeGrid grid = {};
  LayerSums sums = {};

  int64_t blocks() const { return (w.cols + grid.block - 1) / grid.block; }
  size_t scale_of(int64_t o, int64_t k) const {
    return grid.shared ? 0 : static_cast<size_t>(o * blocks() + k / grid.block);
  }
};

double value_of(const LayerData& data, const LayerState& state, int64_t o, int64_t k);
// The values of the codes, [o, k].
Matrix values_of(const LayerData& data, const LayerState& state);
// The code nearest to x, ties to even.
double nearest_code(const LayerData& data, const LayerState& state, size_t scale, double x);
// A scale as the scheme stores it: fp32, of scale_dtype, a power of two with pow2.
double stored_scale(const QuantSpec& spec, double scale);
// Mean over rows of |y - w x - b|^2, by output: what each step is measured by.
std::vector<double> output_errors(const LayerData& data, const LayerState& state);
double total(const std::vector<double>& parts);

// A part of a weight: rows [row, last_row) of columns [col, last_col).
struct Part {
  int64_t row = 0, last_row = 0, col = 0, last_col = 0;
};
// The weights to fit values to instead of `w`, those of the float layer: nearest to its outputs on the inputs of the
// quantized model. `biased`: the layer has a bias, which makes up for the means.
Matrix fitted_target(const LayerData& data, const Matrix& w, bool biased, double damp);

// Scales of a part of `w` [o, k], as the scheme fits them, into the state.
void fit_scales(const LayerData& data, const Matrix& w, const Part& part, LayerState& state);
// The same, with the multiple of it that has the least error of the values, each column weighted by the mean square of
// its input: 20 to 130 percent; of ternary codes 40 to 260.
void search_scales(const LayerData& data, const Matrix& w, const Part& part, LayerState& state);

// Both copies of a model while they are in floats, and how one will be quantized.
struct FloatModels {
  Learner& quantized;
  Learner& reference;
  const PrepareSpec& spec;
  std::span<const SampleBatch> samples, norm_samples;
};

class PtqMethod {
 public:
  virtual ~PtqMethod() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view doc() const = 0;
  // Whether it has a step for each layer, and why not for this one; "": it has.
  virtual bool has_layer_step() const { return true; }
  virtual std::string refuses(const LayerData&, const LayerState&) const { return ""; }
  // The state after the step. It is kept if the layer's output error falls.
  virtual LayerState layer(const LayerData&, const LayerState& state, const PtqSpec&) const { return state; }
  // Before anything is quantized. Returns what it did, if that is measured.
  virtual std::vector<PtqLayer> prepare(const FloatModels&) const { return {}; }
  // After all layers.
  virtual void finish(Learner&, std::span<const SampleBatch>) const {}
};

const std::vector<std::unique_ptr<PtqMethod>>& ptq_method_list();
// Throws Error that names the nearest.
const PtqMethod& find_ptq_method(std::string_view name);

// Collects the sums of the layer `slot` (of `quantized`) and of its twin in `reference` over the samples. At most
// `rows` of them, spread evenly.
LayerSums collect_sums(Learner& quantized, Learner& reference, const Module::QuantizableAt& at, int64_t groups,
                       std::span<const SampleBatch> samples, int64_t rows);

// A layer whose model is in floats: its weight, and sums of what it reads and gives. Then: fits it while it is the only
// one that is quantized. fit_alone returns what the methods did.
LayerData float_layer(Learner& learner, const Module::QuantizableAt& at, std::span<const SampleBatch> samples,
                      int64_t rows);
PtqLayer fit_alone(Learner& learner, const Module::QuantizableAt& at, LayerData data, const PtqSpec& spec);
// Throws Error for a method that no layer could use: a wish that would be ignored.
void require_used(const std::vector<PtqLayer>& layers, const PtqSpec& spec);

}  // namespace bitgrad::detail
