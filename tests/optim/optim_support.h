// Parameters and gradients that the tests of optimizers share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/optim/optimizer.h"
#include "support/numbers.h"

namespace bitgrad::test {

using Floats = std::vector<float>;

inline OptimizerSpec named(const std::string& name) {
  OptimizerSpec spec;
  spec.name = name;
  return spec;
}

inline std::unique_ptr<Parameter> float_parameter(const std::string& path, const Shape& shape,
                                                  DType grad = dtypes::fp32) {
  ParameterSpec spec;
  spec.grad = grad;
  spec.init = {"uniform", -1, 1};
  auto p = std::make_unique<Parameter>(shape, spec);
  p->initialize(path, 1);
  return p;
}

// The sum over a window of samples becomes g.
inline void accumulate(Parameter& p, const Tensor& g) {
  Tape tape;
  tape.backward({p.read()}, {g});
}
inline Floats floats(const Tensor& t) {
  const auto n = t.elements();
  return {n.begin(), n.end()};
}

}  // namespace bitgrad::test
