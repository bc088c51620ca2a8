// Layers that a Sequential runs as one op: the table of patterns is in fusions.cpp. Bits, gradients, flags and errors
// are those of the layers one by one. They do run one by one if a hook observes a value between them
// (StepState::on_forward).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad {

// The patterns that match a list of layers, found once, when the list is planned. Refers to the layers.
class Fusions {
 public:
  // Maps the input of the first module to the output of the last. Returns an undefined Var, without side effects, if
  // they must run one by one: it depends on dtypes, on the device, and on whether the model trains.
  struct Fused {
    size_t modules = 0;
    std::function<Var(const Var&)> run;
  };
  explicit Fusions(std::span<const std::shared_ptr<Module>> modules);
  // Those that begin at module i, the longest first.
  const std::vector<Fused>& at(size_t i) const { return at_[i]; }

 private:
  std::vector<std::vector<Fused>> at_;
};

}  // namespace bitgrad
