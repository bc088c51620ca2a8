// Compares two models: their weights, and the output of every module on one batch. For example prepared vs. converted,
// two epochs, two recipes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bitgrad/train/learner.h"

namespace bitgrad {

// Difference of two equally shaped tensors, in double: max abs(a - b), and the root mean square of a - b.
struct Difference {
  double max_abs_difference = 0, rms_difference = 0;
  bool equal_bits = false;  // all values are bitwise equal
};

struct ParameterDifference {
  std::string path = {};
  std::string a = {}, b = {};                // precision: "int4 symmetric group(32)", "fp32"
  bool same_form = false;                    // equal dtype, scheme, granularity and shape
  int64_t elements = 0;                      // of a
  std::optional<int64_t> codes_differ = {};  // nullopt: not codes of the same dtype and shape
  std::optional<Difference> values = {};     // of the dequantized values; nullopt: shapes differ
};

struct OutputDifference {
  std::string path = {};                  // of the module
  std::string a = {}, b = {};             // "[64,10] fp32"
  std::optional<Difference> values = {};  // nullopt: shapes differ
};

struct ModelDifference {
  // Present in both models. Excludes learned parts of weights and of inputs of layers that are switched off.
  std::vector<ParameterDifference> parameters = {};
  std::vector<OutputDifference> modules = {};  // present and executed in both, in the order of a
  OutputDifference output = {};
  std::vector<std::string> only_a = {}, only_b = {};  // parameters and modules present in only one model
  bool equal_bits = false;                            // everything above is equal and nothing is in only one model
};

// Runs x [n, sample...] through both models in evaluation mode. Throws Error if a model does not accept x.
ModelDifference compare_models(Learner& a, Learner& b, const Tensor& x);

}  // namespace bitgrad
