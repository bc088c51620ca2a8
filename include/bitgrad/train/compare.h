// Two models side by side: their weights, and what every module makes of one batch. Prepared and converted, two epochs,
// two recipes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bitgrad/train/learner.h"

namespace bitgrad {

// What two lists of numbers have between them: max abs(a - b), and the root of the mean of (a - b)^2, in double.
struct Difference {
  double max_abs_difference = 0, rms_difference = 0;
  bool equal_bits = false;  // every number is the same, bit for bit
};

struct ParameterDifference {
  std::string path = {};
  std::string a = {}, b = {};                // how it is held: "int4 symmetric group(32)", "fp32"
  bool same_form = false;                    // of equal dtype, scheme, granularity and shape
  int64_t elements = 0;                      // of a
  std::optional<int64_t> codes_differ = {};  // none: not codes of one dtype
  std::optional<Difference> values = {};     // of what the codes stand for; none: other shapes
};

struct OutputDifference {
  std::string path = {};                  // of the module
  std::string a = {}, b = {};             // "[64,10] fp32"
  std::optional<Difference> values = {};  // none: other shapes
};

struct ModelDifference {
  // That both have. Learned parts of weights, and inputs of layers that are switched off, are left out.
  std::vector<ParameterDifference> parameters = {};
  std::vector<OutputDifference> modules = {};  // that both have and run, in the order of a
  OutputDifference output = {};
  std::vector<std::string> only_a = {}, only_b = {};  // parameters and modules of one of them
  bool equal_bits = false;                            // all of the above, and nothing is of one alone
};

// x [n, features] goes through both in evaluation mode. Throws Error when a model does not take x.
ModelDifference compare_models(Learner& a, Learner& b, const Tensor& x);

}  // namespace bitgrad
