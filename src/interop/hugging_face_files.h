// The tensors of a Hugging Face folder: model.safetensors, or the shards listed in model.safetensors.index.json.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bitgrad/io/safetensors.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::interop {

// Maps tensors to files, from the weight_map of an index. Throws Error(kData) for malformed text, and for file names
// that are not directly in the folder.
std::map<std::string, std::string> parse_safetensors_index(const std::string& text, const std::string& where);

class HuggingFaceFiles {
 public:
  // Opens a folder, an index of shards (*.index.json) or a single .safetensors file. Throws Error(kData) for missing or
  // damaged files, and for a tensor that is in two files or not in the one that the index names.
  explicit HuggingFaceFiles(const std::string& path);

  bool contains(const std::string& name) const { return place_.count(name) > 0; }
  const SafetensorsEntry& entry(const std::string& name) const { return file_of(name).entry(name); }
  const uint8_t* data(const std::string& name) const { return file_of(name).data(name); }
  std::vector<std::string> names() const;
  const std::vector<std::string>& read() const { return read_; }      // files
  const std::vector<std::string>& unused() const { return unused_; }  // files that say what is not so
  // fp32 values of F32, F16, BF16 or F64, in the tensor's own shape. Throws Error(kData) for NaN and Inf.
  Tensor floats(const std::string& name) const;
  // Codes of BitNet's packed form [rows / 4, cols]: row i*rows/4 + r is in bits 2i of row r, as code + 1. No scales.
  Tensor ternary(const std::string& name) const;

 private:
  const SafetensorsFile& file_of(const std::string& name) const { return files_[place_.at(name)]; }
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> place_;
  std::vector<std::string> read_, unused_;
};
// Whether floats() supports the dtype.
bool is_float_type(const std::string& dtype);
// The inverse of ternary(), for codes [rows, cols]; rows must be a multiple of 4.
std::vector<uint8_t> packed_ternary(const Tensor& codes);

}  // namespace bitgrad::interop
