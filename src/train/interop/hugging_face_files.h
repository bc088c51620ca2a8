// The tensors of a Hugging Face folder: model.safetensors, or shards that model.safetensors.index.json names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bitgrad/io/safetensors.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::interop {

// The files of a weight_map, by tensor. Throws Error(kData) for a text of another form, and for a name of a file that
// is not one in the folder itself.
std::map<std::string, std::string> parse_safetensors_index(const std::string& text, const std::string& where);

class HuggingFaceFiles {
 public:
  // Of a folder, an index of shards (*.index.json) or one .safetensors file. Throws Error(kData) for files that are
  // absent or damaged, a tensor that is not in the file that the index says, or in two.
  explicit HuggingFaceFiles(const std::string& path);

  bool contains(const std::string& name) const { return place_.count(name) > 0; }
  const SafetensorsEntry& entry(const std::string& name) const { return file_of(name).entry(name); }
  std::vector<std::string> names() const;
  // fp32, of F32, F16, BF16 or F64; its own shape. Throws Error(kData) for NaN and Inf.
  Tensor floats(const std::string& name) const;
  // Codes of BitNet's packed form [rows / 4, cols]: row i*rows/4 + r in bits 2i of row r, code + 1. Without scales.
  Tensor ternary(const std::string& name) const;

 private:
  const SafetensorsFile& file_of(const std::string& name) const { return files_[place_.at(name)]; }
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> place_;
};
// Whether floats() reads it.
bool is_float_type(const std::string& dtype);
// What ternary() reads, of codes [rows, cols] with rows a multiple of 4.
std::vector<uint8_t> packed_ternary(const Tensor& codes);

}  // namespace bitgrad::interop
