// Initial values of masters, drawn from Philox with purpose kInit, the id of the parameter's path, and step 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

class Shape;
class Tensor;

// One of the rules below; a and b are the rule's arguments, if it has any. fan_in = columns, fan_out = rows.
//   constant(c), uniform(a,b), normal(mean,sd), zeros
// Glorot and Bengio 2010, eq. 16:
//   glorot_uniform:  U(-r, r), r = sqrt(6 / (fan_in + fan_out))
//   glorot_normal:   sd = sqrt(2 / (fan_in + fan_out))
// He et al. 2015, arXiv 1502.01852:
//   he_uniform:      U(-r, r), r = sqrt(6 / fan_in)
//   he_normal:       sd = sqrt(2 / fan_in)
// An empty name selects the default, as in configurations: glorot_uniform, or normal(0,1) for embedding tables.
// Built-in layers initialize biases to 0 and norm parameters to 1 and 0. For a bias of a user module that should start
// at 0, use {"zeros"}.
struct Init {
  std::string name = {};
  double a = 0, b = 0;
  friend bool operator==(const Init&, const Init&) = default;
};

// fan_in and fan_out of a weight whose fans are not the columns and rows of its matrix (convolutions: kh*kw*C and
// O*kh*kw). 0: use the matrix.
struct Fans {
  int64_t in = 0, out = 0;
  friend bool operator==(const Fans&, const Fans&) = default;
};

std::vector<std::string_view> init_names();
// Fills `out` (fp32). Throws Error for an unknown name; an empty name means glorot_uniform.
void initialize(const Init& init, uint64_t seed, std::string_view path, const Tensor& out);
// Draws the same values for part of a tensor: `out` receives elements first, first + 1, ... (row-major) of a tensor of
// shape `whole`.
void initialize_part(const Init& init, uint64_t seed, std::string_view path, const Shape& whole, int64_t first,
                     const Tensor& out, Fans fans = {});

}  // namespace bitgrad
