// Arrays of a numpy .npz archive, by name. File contents are untrusted and validated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

namespace data {
class ZipArchive;
}

struct NpzEntry {
  std::string name = {};   // without .npy
  std::string descr = {};  // as written by numpy, e.g. <f4
  Shape shape = {};
  bool floats = false;  // element type is float16, float32 or float64
  size_t member = 0;    // in the archive
};

class NpzFile {
 public:
  // Throws Error(kData) that names the path if the archive is damaged, two arrays have the same name, or a member is
  // not an array.
  explicit NpzFile(const std::string& path);
  const std::vector<NpzEntry>& entries() const { return entries_; }
  // The array as fp32 on the CPU, in its own shape; float64 is rounded. Throws Error(kData) if the array is damaged or
  // not of floats.
  Tensor floats(const std::string& name) const;

 private:
  std::string path_;
  std::unique_ptr<InputFile> file_;
  std::shared_ptr<const data::ZipArchive> archive_;
  std::vector<NpzEntry> entries_;
};

// The header of an .npy file of version 1.0, padded to a multiple of 64 bytes. `shape`: as Python writes it, "(3, 4)".
std::string npy_header_bytes(const std::string& descr, const std::string& shape);

}  // namespace bitgrad
