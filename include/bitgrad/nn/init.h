// Initial numbers of masters, drawn by Philox: purpose kInit, id of the parameter's path, step 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// One of these rules; a and b are the arguments of those that have them. fan_in = columns, fan_out = rows.
//   constant(c), uniform(a,b), normal(mean,sd), zeros
// Glorot and Bengio 2010, eq. 16:
//   glorot_uniform:  U(-r, r), r = sqrt(6 / (fan_in + fan_out))
//   glorot_normal:   sd = sqrt(2 / (fan_in + fan_out))
// He et al. 2015, arXiv 1502.01852:
//   he_uniform:      U(-r, r), r = sqrt(6 / fan_in)
//   he_normal:       sd = sqrt(2 / fan_in)
// An empty name is the default of the place, the one that configurations have: glorot_uniform, in the table of an
// embedding normal(0,1). Layers initialize their own biases with 0, and the parameters of norms with 1 and 0; a bias of
// your own module that is to begin at 0 says {"zeros"}.
struct Init {
  std::string name = {};
  double a = 0, b = 0;
  friend bool operator==(const Init&, const Init&) = default;
};

// fan_in and fan_out of a weight, where they are not the columns and rows of its matrix (a convolution: kh*kw*C and
// O*kh*kw). 0: those of the matrix.
struct Fans {
  int64_t in = 0, out = 0;
  friend bool operator==(const Fans&, const Fans&) = default;
};

std::vector<std::string_view> init_names();
// Throws Error for an unknown name; an empty one is glorot_uniform.
void initialize(const Init& init, uint64_t seed, std::string_view path, const Tensor& out);
// The same numbers of a part: `out` gets elements first, first + 1, .. of a tensor of shape `whole` (row-major).
void initialize_part(const Init& init, uint64_t seed, std::string_view path, const Shape& whole, int64_t first,
                     const Tensor& out, Fans fans = {});

}  // namespace bitgrad
