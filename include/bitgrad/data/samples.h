// Samples without targets, from files or from a program's memory, as input for prediction.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

// [count, shape...] row-major, in memory owned by the caller.
struct SampleView {
  std::string_view name = "samples";   // for messages
  StoredAs stored = StoredAs::kFloat;  // kUint8: pixels, or ids; kUint16, kInt32: ids; kFloat: values
  Shape shape = {};                    // of one sample
  int64_t count = 0;
  const void* data = nullptr;
};

// The same, owning its memory.
struct Samples {
  std::string name = {};
  StoredAs stored = StoredAs::kFloat;
  Shape shape = {};
  int64_t count = 0;
  TrackedBytes bytes = {};
  SampleView view() const { return {name, stored, shape, count, bytes.data()}; }
};

// Each reader throws Error(kData) that begins with the format and `path` if the file is damaged or not of that format.
// idx, plain or gzip: uint8 [n, rows, columns] as bytes; other types, [n, ...] with 2 to 4 axes, as fp32 values, which
// must be finite and, for integers, exact.
Samples read_idx_samples(const std::string& path, InputFile& file);
// .npy file [n, ...] of numbers or bool, in any byte order and order of memory: uint8 as bytes; with `ids` other
// integers as int32, which must hold them; all others as fp32, rounded once, which must be finite.
Samples read_npy_samples(const std::string& path, InputFile& file, bool ids);
// The same of an .npz archive: its only array, or the one that is named images.
Samples read_npz_samples(const std::string& path, InputFile& file, bool ids);
// Lines of comma-separated numbers, one sample per line, for models without a plan of a table (data/table.h): fp32
// values, or with `ids` integers of int32. A first line of names is a header, as in format csv with header auto;
// `notes` receives a doubt about it. Error(kData) names file, line and value.
Samples read_csv_samples(const std::string& path, std::string_view text, bool ids,
                         std::vector<std::string>* notes = nullptr);

// Converts stored samples to values as a run's data sets do (DatasetSpec::affine, normalize; each operation rounded
// once).
class SampleValues {
 public:
  // Throws Error for invalid parameters, or if both affine and normalization are given.
  explicit SampleValues(std::array<float, 2> affine = {1.0f, 0.0f}, Normalization normalize = {});
  // Writes samples [first, first + count) as values to `to` [count, shape...]. Throws Error for ids, and if the
  // normalization has a different number of channels than the samples.
  void write(const SampleView& samples, int64_t first, int64_t count, float* to) const;

 private:
  std::array<float, 2> affine_;
  Normalization normalize_;
  std::vector<float> table_;  // [channels or 1, 256]: value of each byte
};
// A warning on bytes of vectors, which may be a table: they are read as pixels. Empty for other samples.
std::string bytes_warning(const SampleView& samples);
// Writes samples [first, first + count) as ids. The samples must not be fp32 values.
void write_ids(const SampleView& samples, int64_t first, int64_t count, int32_t* to);

}  // namespace bitgrad
