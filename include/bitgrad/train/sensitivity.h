// Sensitivity: what holding one layer alone in few bits does to a trained model.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/train/learner.h"
#include "bitgrad/train/ptq.h"

namespace bitgrad {

// The recipe of weights alone that a number of bits means: int8wo, int6wo, int5wo, int4wo_symmetric, int3wo, int2wo,
// and binary_wo for 1 (src/train/ptq/uniform_recipes.inc). Throws Error for others (lists them).
std::string uniform_recipe(int64_t bits);

// How a weight may be held: the weight's part of a recipe.
struct WeightChoice {
  std::string recipe = {};
  bool rows = false;  // groups are as long as the row of the layer: one scale for each output
};

// One layer held by one choice, all others as they were.
struct LayerEffect {
  std::string recipe = {};
  std::optional<int64_t> group = {};  // in place of the recipe's
  int64_t bits = 0;                   // of a code
  int64_t bytes = 0;                  // of codes and scales, as in a file
  double noise = 0;                   // sum (w - q)^2 / sum w^2 over the weight; 0 for a weight of zeros
  double loss_change = 0;             // of the mean loss of the samples
  double accuracy_change = 0;         // in points of a percent
  // 10 log10(1 / noise); infinite without noise.
  double sqnr_db() const;
};
struct LayerSensitivity {
  std::string layer = {}, kind = {};
  Shape shape = {};
  int64_t bytes = 0;                      // as it is
  std::vector<LayerEffect> effects = {};  // in the order of the choices
};
struct Sensitivity {
  int64_t samples = 0;
  double loss = 0, accuracy = 0;  // of the model as it is
  std::vector<LayerSensitivity> layers = {};
};

// Each quantizable layer in turn takes each choice, which is evaluated on the samples in evaluation
// mode; its input stays as it is. Afterwards the model holds the numbers, codes and scales that it had, bit for bit;
// its layouts are planned for evaluation, and parts that a weight learns are new objects, so that the learner needs to
// be planned before it trains on. Throws Error for a converted model, for a recipe without weights, and for rows of one
// that has no groups.
Sensitivity measure_sensitivity(Learner& learner, std::span<const SampleBatch> samples,
                                std::span<const WeightChoice> choices);
// recipe (with its group), bits, bytes, SQNR in dB, changes of loss and accuracy: cells of a table.
std::vector<std::string> effect_cells(const LayerEffect& effect);
void print_sensitivity(std::ostream& out, const Sensitivity& sensitivity);
// {"samples", "loss", "accuracy", "layers": [{"layer", "kind", "shape", "bytes", "recipes": [{"recipe", "group",
// "bits", "bytes", "sqnr_db", "loss_change", "accuracy_change"}]}]}
std::string sensitivity_json(const Sensitivity& sensitivity);

}  // namespace bitgrad
