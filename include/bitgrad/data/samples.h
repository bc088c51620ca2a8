// Samples without targets, from files or from a program's memory, as input for prediction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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
  // The value of each byte, [channels or 1, 256].
  const std::vector<float>& table() const { return table_; }

 private:
  std::array<float, 2> affine_;
  Normalization normalize_;
  std::vector<float> table_;
};
// A warning on bytes of vectors, which may be a table: they are read as pixels. Empty for other samples.
std::string bytes_warning(const SampleView& samples);
// Writes samples [first, first + count) as ids. The samples must not be fp32 values.
void write_ids(const SampleView& samples, int64_t first, int64_t count, int32_t* to);

// A data set over arrays of the calling program: samples and targets in its memory, without a copy.
struct MemoryDatasetSpec {
  SampleView samples = {};  // uint8 (pixels) or fp32 values; or, with `vocabulary`, uint8, uint16 or int32 ids
  SampleView targets = {};  // kFloat: values [n, shape...]; uint8, uint16, int32: classes [n, shape...]
  int64_t classes = 0;      // number of classes; 0: the largest class + 1
  int64_t vocabulary = 0;   // number of ids; 0 if samples are values
  std::array<float, 2> affine{1.0f, 0.0f};  // as in DatasetSpec; applies to pixels and values
  Normalization normalize = {};
  std::shared_ptr<const void> owner = {};  // keeps the arrays alive; empty if the caller does
};
// Yields the same examples, bit for bit, as an idx or npy file of these arrays. Throws Error for mismatched shapes or
// counts, values that are not finite, and classes or ids out of range.
std::unique_ptr<Dataset> make_memory_dataset(const MemoryDatasetSpec& spec);

// Describes an idx file (plain or gzip, any element type), an .npy file, an .npz archive, a CSV table or an image
// folder: format, element type, shape, range, mean and standard deviation (for pixels per channel and of p/255, as
// data.normalize expects them), the count of each class in labels or of each category in a column, and the number of
// files per class. Throws Error(kData) if the path is missing or has none of these formats.
std::string describe_data_file(const std::string& path);

// The same as a JSON object, with `format` and these members, by format:
// - idx, npy: type, shape, least, largest, mean, std, finite; classes (samples per class), normalize {mean, std};
// - npz: arrays [{name, type, shape}];
// - csv: rows, columns [{name, missing, categories {name: rows}, or least, largest, mean, std}];
// - image_folder: files, classes {name: files}.
std::string describe_data_json(const std::string& path);

}  // namespace bitgrad
