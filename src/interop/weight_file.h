// Named tensors of another program's file in any format, for init_from_weights, and the order of their columns.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/tensor/shape.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::interop {

struct WeightEntry {
  std::string name, type;  // type: the format's own name
  Shape shape;
  bool floats = false;  // read() supports it
};

class WeightFile {
 public:
  // Chooses the format by the ending of the path. Throws Error(kData) that names the path.
  explicit WeightFile(const std::string& path);
  const std::vector<WeightEntry>& entries() const { return entries_; }
  // fp32 values on the CPU. Throws Error(kNonFinite) if they are not finite.
  Tensor read(const std::string& name) const;

 private:
  std::vector<WeightEntry> entries_;
  std::function<Tensor(const std::string& name)> values_;
};

// Paths of the parameters and buffers whose inputs are a flattened image, and its form [h, w, c]: up to the first layer
// that mixes features. PyTorch has them in the order [c, h, w].
std::map<std::string, Shape> flattened_images(Module& model);

}  // namespace bitgrad::interop
