// The tensors of a model in the order of a file, each with the values that it gets.
#pragma once

#include <map>
#include <string>

#include "bitgrad/nn/module.h"
#include "bitgrad/train/interop.h"
#include "train/interop/tensor_map.h"

namespace bitgrad::interop {

// Parameters by path, and how the layers that own weights are quantized.
class ModelValues {
 public:
  // Throws Error for a model that is not initialized, that has adapters, or whose quantization is switched off.
  explicit ModelValues(Module& model);
  // Of a mapped tensor, rows in the order of the file; zeros where the model has none.
  Tensor part(const MappedTensor& mapped, bool interleaved) const;
  // Why the product with this weight is another one in a program that rounds inputs to 8 bits; empty: it is not.
  std::string input_refusal(const MappedTensor& mapped) const;

 private:
  std::map<std::string, Parameter*> parameters_;
  std::map<std::string, LayerQuant> slots_;  // by the path of the weight
};

// Throws Error that lists the refused tensors.
void require_none_refused(const ExportReport& report, std::string_view where);

}  // namespace bitgrad::interop
