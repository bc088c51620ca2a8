// Saves and restores the values of a model.
#pragma once

#include <map>
#include <string>

#include "bitgrad/nn/module.h"

namespace bitgrad::detail {

// A copy of codes that shares neither bytes nor scales with them.
Tensor copy_with_scales(const Tensor& codes);

// A copy of all parameters and buffers of a model. They can be restored after its form was changed and changed back.
class Numbers {
 public:
  explicit Numbers(Module& model);
  void restore(Module& model) const;

 private:
  std::map<std::string, ParameterState> parameters_;
  std::map<std::string, Tensor> buffers_;
};

}  // namespace bitgrad::detail
