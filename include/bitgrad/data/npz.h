// Arrays of an .npz archive of numpy, by name. Nothing that a file says is trusted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

struct NpzEntry {
  std::string name = {};   // without .npy
  std::string descr = {};  // as numpy writes it: <f4
  Shape shape = {};
  bool floats = false;  // float16, float32 or float64
};

class NpzFile {
 public:
  // Throws Error(kData) that names the path for a damaged archive, two arrays of one name, or an array that is none.
  explicit NpzFile(const std::string& path);
  const std::vector<NpzEntry>& entries() const { return entries_; }
  // fp32 on the CPU, float64 rounded; its own shape. Throws Error(kData) for an array that is damaged or no floats.
  Tensor floats(const std::string& name) const;

 private:
  std::string path_;
  std::unique_ptr<InputFile> file_;
  std::vector<NpzEntry> entries_;
};

}  // namespace bitgrad
