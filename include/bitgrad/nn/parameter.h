// Parameter: what trains. A low-bit parameter has a float master, the low-bit value that forward and backward read, a
// gradient with a dtype of its own, and a quantizer that makes the value from the master. A float parameter has a value
// only: it is its own master.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/init.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

struct ParameterSpec {
  std::optional<QuantSpec> quant;  // none: fp32
  DType grad = dtypes::fp32;       // fp32 or bf16
  Init init;
  std::optional<float> latent_clamp;  // masters are clamped to [-c, c] after each update
};

class Parameter {
 public:
  // Throws Error when the quantizer refuses the spec.
  Parameter(Shape shape, ParameterSpec spec);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& path() const { return path_; }
  const Shape& shape() const { return shape_; }
  const ParameterSpec& spec() const { return spec_; }
  bool low_bit() const { return spec_.quant.has_value(); }
  // Low-bit: codes with scales and derived layouts. Float: the numbers.
  const Tensor& value() const { return value_; }
  // fp32 [shape]; the value itself for a float parameter.
  const Tensor& master() const { return low_bit() ? master_ : value_; }
  // The gradient summed over the microbatches of the window, in grad_dtype; undefined before the first backward.
  const Tensor& grad() const { return sink_.grad(); }
  bool has_grad() const { return sink_.filled(); }
  DType grad_dtype() const { return spec_.grad; }

  // A leaf on the current tape (each call one leaf on the same sink), or a constant when there is none.
  Var read();
  void zero_grad() { sink_.clear(); }

  // Draws the master and makes the first value. Called once by the owner of the model, when paths are known.
  void initialize(const std::string& path, uint64_t seed);
  // value = quantizer(master), scales fitted anew, all planned layouts written. `step` keys stochastic rounding. Throws
  // Error(kNonFinite) that names the parameter when the master holds NaN or Inf. Nothing to do for a float parameter.
  void requantize(uint64_t seed, int64_t step);
  // A further layout of the value that the chosen kernels read; written now and by every requantize.
  void add_layout(Layout layout);
  // Sums in bf16 are rounded stochastically when on (drawn by path and microbatch).
  void set_gradient_rounding(bool stochastic, uint64_t seed, int64_t microbatch);

  // Resume: codes and scales byte for byte as they were (they come from the masters of the last requantization).
  void restore(const Tensor& master, const Tensor& value);

 private:
  void write_layouts();

  std::string path_;
  Shape shape_;
  ParameterSpec spec_;
  const Quantizer* quantizer_ = nullptr;
  Tensor master_, value_;
  std::vector<Layout> planned_;
  AccumulateSink sink_;
  RandomStream gradient_draws_;
};

}  // namespace bitgrad
