// Gradient check: gradients of a function of fp64 tensors, compared with central differences.
//
//   d/dx_i sum_j s_j y_j(x)  ~  (f(x_i + h) - f(x_i - h)) / 2h,  h = 1e-6,
// with fixed random weights s. docs/numerics.md section 8: relative tolerance 1e-6 (absolute below 1).
// Devices have no fp64. Where one is current, value and gradients of the same inputs in fp32 have the bits of the CPU.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "support/device_difference.h"
#include "support/numbers.h"

namespace bitgrad::test {

using CheckedFunction = std::function<Var(const std::vector<Var>&)>;

inline double weighted_value(const CheckedFunction& fn, const std::vector<Tensor>& inputs, const Tensor& weights) {
  const NoGrad off;
  const std::vector<double> y = fn({inputs.begin(), inputs.end()}).value().elements(), s = weights.elements();
  double total = 0;
  for (size_t i = 0; i < y.size(); ++i) total += y[i] * s[i];
  return total;
}

inline std::string difference_in_fp32(const CheckedFunction& fn, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> narrow;
  for (const Tensor& x : inputs) narrow.push_back(Tensor::from_elements(x.shape(), dtypes::fp32, x.elements()));
  return difference_on(current_device(), [&] {
    std::vector<AccumulateSink> sinks(narrow.size());
    Tape tape;
    std::vector<Var> leaves;
    for (size_t i = 0; i < narrow.size(); ++i) leaves.push_back(tape.leaf(here(narrow[i]), &sinks[i], dtypes::fp32));
    const Var y = fn(leaves);
    tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 77, 0.5, 1.5)});
    Results out{y.value()};
    for (const AccumulateSink& sink : sinks) out.push_back(sink.grad());
    return out;
  });
}

// Returns "" if all gradients agree, otherwise a description of the first that does not. `inputs` are fp64 and dense;
// fn must be a pure function of them.
inline std::string gradcheck(const CheckedFunction& fn, const std::vector<Tensor>& inputs, double tolerance = 1e-6) {
  if (!current_device().is_cpu()) return difference_in_fp32(fn, inputs);
  constexpr double kStep = 1e-6;
  std::vector<AccumulateSink> sinks(inputs.size());
  Tensor weights;
  {
    Tape tape;
    std::vector<Var> leaves;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].dtype() != dtypes::fp64) return concat("input ", i, " is ", inputs[i], ", expected fp64");
      leaves.push_back(tape.leaf(inputs[i].clone(MemoryKind::kActivation), &sinks[i], dtypes::fp64));
    }
    const Var y = fn(leaves);
    weights = random_tensor(y.shape(), dtypes::fp64, 77, 0.5, 1.5);
    tape.backward({y}, {weights});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].numel() == 0) continue;
    if (!sinks[i].filled()) return concat("input ", i, " got no gradient");
    for (int64_t e = 0; e < inputs[i].numel(); ++e) {
      std::vector<Tensor> moved = inputs;
      moved[i] = inputs[i].clone(MemoryKind::kActivation);
      double& x = moved[i].as<double>()[e];
      const double at = x;
      x = at + kStep;
      const double above = weighted_value(fn, moved, weights);
      x = at - kStep;
      const double below = weighted_value(fn, moved, weights);
      const double expected = (above - below) / (2 * kStep), got = sinks[i].grad().as<double>()[e];
      if (!(std::fabs(got - expected) <= tolerance * std::max({1.0, std::fabs(got), std::fabs(expected)})))
        return concat("input ", i, " element ", e, ": gradient ", got, ", central difference ", expected);
    }
  }
  return "";
}

}  // namespace bitgrad::test
