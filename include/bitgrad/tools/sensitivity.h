// Quantization sensitivity: the effect on a trained model of holding a single layer in few bits.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/tools/ptq.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// The weight-only recipe for a number of bits: int8wo, int6wo, int5wo, int4wo_symmetric, int3wo, int2wo, and binary_wo
// for 1 (src/tools/uniform_recipes.inc). Throws Error for other numbers; the message lists them.
std::string uniform_recipe(int64_t bits);

// A candidate precision for a weight: the weight part of a recipe.
struct WeightChoice {
  std::string recipe = {};
  bool rows = false;  // one group per row: one scale per output
};

// Effect of quantizing one layer with one choice, all other layers unchanged.
struct LayerEffect {
  std::string recipe = {};
  std::optional<int64_t> group = {};  // replaces the recipe's group size
  int64_t bits = 0;                   // per code
  int64_t bytes = 0;                  // of codes and scales, as in a file
  double noise = 0;                   // sum (w - q)^2 / sum w^2 over the weight; 0 for an all-zero weight
  double loss_change = 0;             // of the mean loss over the samples
  double accuracy_change = 0;         // in percentage points
  // 10 log10(1 / noise); infinity if noise is 0.
  double sqnr_db() const;
};
struct LayerSensitivity {
  std::string layer = {}, kind = {};
  Shape shape = {};
  int64_t bytes = 0;                      // at its current precision
  std::vector<LayerEffect> effects = {};  // in the order of the choices
};
struct Sensitivity {
  int64_t samples = 0;
  double loss = 0, accuracy = 0;  // of the unmodified model, accuracy in percent
  std::vector<LayerSensitivity> layers = {};
};

// Applies each choice to each quantizable layer in turn and evaluates the samples in evaluation mode; the layer's input
// quantization is unchanged. The statistics of norms are renewed on `norm_samples` (renew_norms), those of the
// unmodified model too; none: they stay. Afterwards the model has its original values, codes and scales, bit for bit,
// but layouts are planned for evaluation and a weight's learned parts are new objects, so the learner must be planned
// again before further training. Throws Error for a converted model, a recipe that does not quantize weights, and
// `rows` with a recipe that has no groups.
Sensitivity measure_sensitivity(Learner& learner, std::span<const SampleBatch> samples,
                                std::span<const WeightChoice> choices, std::span<const SampleBatch> norm_samples);
// The same with norms renewed on the samples.
Sensitivity measure_sensitivity(Learner& learner, std::span<const SampleBatch> samples,
                                std::span<const WeightChoice> choices);
// Table cells: recipe (with group), bits, bytes, SQNR in dB, changes of loss and accuracy.
std::vector<std::string> effect_cells(const LayerEffect& effect);
void print_sensitivity(std::ostream& out, const Sensitivity& sensitivity);
// {"samples", "loss", "accuracy", "layers": [{"layer", "kind", "shape", "bytes", "recipes": [{"recipe", "group",
// "bits", "bytes", "sqnr_db", "loss_change", "accuracy_change"}]}]}
std::string sensitivity_json(const Sensitivity& sensitivity);

}  // namespace bitgrad
