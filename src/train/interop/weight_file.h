// Named tensors of another program's file, whatever its format: what init_from_weights reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::interop {

struct WeightEntry {
  std::string name, type;  // type: as the format calls it
  Shape shape;
  bool floats = false;  // read() has it
};

class WeightFile {
 public:
  virtual ~WeightFile() = default;
  // By the end of the path. Throws Error(kData) that names the path.
  static std::unique_ptr<WeightFile> open(const std::string& path);
  virtual std::vector<WeightEntry> entries() const = 0;
  // fp32 values on the CPU, which are finite: else Error(kNonFinite).
  Tensor read(const std::string& name) const;

 protected:
  virtual Tensor values(const std::string& name) const = 0;
};

}  // namespace bitgrad::interop
