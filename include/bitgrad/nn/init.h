// Initial numbers of masters, drawn by Philox: purpose kInit, id of the parameter's path, step 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// name in { uniform(a,b), normal(mean,sd), constant(c), glorot_uniform, kaiming_uniform }; a, b are the arguments.
//   glorot_uniform:  U(-r, r), r = sqrt(6 / (fan_in + fan_out))      Glorot and Bengio 2010, eq. 16
//   kaiming_uniform: U(-r, r), r = sqrt(6 / fan_in)                  He et al. 2015, arXiv 1502.01852
struct Init {
  std::string name = "constant";
  double a = 0, b = 0;
  friend bool operator==(const Init&, const Init&) = default;
};

std::vector<std::string_view> init_names();
// Throws Error for an unknown name.
void initialize(const Init& init, uint64_t seed, std::string_view path, const Tensor& out);

}  // namespace bitgrad
