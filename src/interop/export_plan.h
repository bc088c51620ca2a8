// The tensors of a model in the order of a file, each with its values.
#pragma once

#include <map>
#include <string>

#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/module.h"
#include "interop/tensor_map.h"

namespace bitgrad::interop {

// Parameters by path, and the quantization of layers that own weights.
class ModelValues {
 public:
  // Throws Error for a model that is not initialized, has adapters, or has quantization switched off.
  explicit ModelValues(Module& model);
  // The values of a mapped tensor, rows in file order; zeros if the model has none.
  Tensor part(const MappedTensor& mapped, bool interleaved) const;
  // Why a program that rounds inputs to 8 bits would compute this weight's product differently; empty if it would not.
  std::string input_refusal(const MappedTensor& mapped) const;

 private:
  std::map<std::string, Parameter*> parameters_;
  std::map<std::string, LayerQuant> slots_;  // by path of the weight
};

// Throws Error that lists the refused tensors.
void require_none_refused(const ExportReport& report, std::string_view where);

}  // namespace bitgrad::interop
