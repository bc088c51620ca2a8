// Samples without targets, as files or a program's memory hold them: what a model predicts from.
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

// [count, shape...] row-major, in memory of somebody else.
struct SampleView {
  std::string_view name = "samples";   // for messages
  StoredAs stored = StoredAs::kFloat;  // kUint8: pixels, or ids; kUint16, kInt32: ids; kFloat: values
  Shape shape = {};                    // of one sample
  int64_t count = 0;
  const void* data = nullptr;
};

// The same with its memory.
struct Samples {
  std::string name = {};
  StoredAs stored = StoredAs::kFloat;
  Shape shape = {};
  int64_t count = 0;
  TrackedBytes bytes = {};
  SampleView view() const { return {name, stored, shape, count, bytes.data()}; }
};

// Each throws Error(kData) that begins with the format and `path` for a file that is damaged or no such file.
// idx, plain or gzip: uint8 [n, rows, columns] as bytes; other types, [n, ...] of 2 to 4 axes, as fp32 values, which
// must be finite and hold an integer exactly.
Samples read_idx_samples(const std::string& path, InputFile& file);
// An .npy file [n, ...]: uint8 as bytes; other integers as int32, which must hold them; float32, and float64 rounded to
// fp32, which must be finite.
Samples read_npy_samples(const std::string& path, InputFile& file);
// Lines of numbers with commas between them, a sample a line: fp32 values, or with `ids` whole numbers of int32. A
// first line without any number is a head and skipped; empty lines are skipped. Error(kData) names file, line and
// value.
Samples read_csv_samples(const std::string& path, std::string_view text, bool ids);

// What the data sets of a run make of stored samples (DatasetSpec::affine, normalize; each operation rounded once).
class SampleValues {
 public:
  // Throws Error for numbers that cannot be used, and for both of the two.
  explicit SampleValues(std::array<float, 2> affine = {1.0f, 0.0f}, Normalization normalize = {});
  // Samples [first, first + count) as values: to [count, shape...]. Error where the normalization has another number of
  // channels than the samples, and for ids.
  void write(const SampleView& samples, int64_t first, int64_t count, float* to) const;

 private:
  std::array<float, 2> affine_;
  Normalization normalize_;
  std::vector<float> table_;  // [channels or 1, 256]: what a byte stands for
};
// The same as ids; samples are no fp32 values.
void write_ids(const SampleView& samples, int64_t first, int64_t count, int32_t* to);

}  // namespace bitgrad
