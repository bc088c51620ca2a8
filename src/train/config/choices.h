// Allowed values that come from lists elsewhere, one function each: the only place where the configuration meets those
// lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::config::choices {

using Names = std::vector<std::string>;

Names weight_dtypes();      // what a weight may be held in: all packed dtypes, fp32
Names activation_dtypes();  // what activations may be quantized to: all packed dtypes
Names gradient_dtypes();
Names schemes();
Names ste_rules();
Names roundings();
Names alphas();
Names optimizers();
Names schedules();
Names losses();
Names dataset_formats();
Names devices();
Names layer_kinds();
Names bits_modes();
Names splits();

// How many numbers a kind of first values takes: uniform(a,b) has 2.
struct InitKind {
  std::string_view name;
  int numbers;
};
std::vector<InitKind> init_kinds();

// Schemes that can make codes of this dtype, the default first; empty for a float dtype.
Names schemes_for(DType dtype, bool weight);
std::string default_ste(std::string_view scheme);
// Schemes for which this rule has a meaning; empty: all.
Names schemes_of_ste(std::string_view ste);

}  // namespace bitgrad::config::choices
