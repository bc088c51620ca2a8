// In-memory examples: byte samples, converted to fp32 on access, fp32 samples, or ids; targets are classes or values.
// Keys of formats of arrays.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/samples.h"

namespace bitgrad::data {

// Elements first .. first + n - 1 of stored classes or ids (not kFloat).
inline void widen_stored(const void* stored, StoredAs form, int64_t first, int64_t n, int32_t* to) {
  const auto widen = [&](const auto* from) { std::copy_n(from + first, n, to); };
  if (form == StoredAs::kUint8) return widen(static_cast<const uint8_t*>(stored));
  if (form == StoredAs::kUint16) return widen(static_cast<const uint16_t*>(stored));
  widen(static_cast<const int32_t*>(stored));
}
// Writes sample `id` of `features` elements: fp32 values, or int32 ids.
inline void copy_stored_sample(const StoredSamples& stored, int64_t id, int64_t features, void* to) {
  const uint8_t* const from =
      static_cast<const uint8_t*>(stored.codes) + id * stored.stride * element_bytes(stored.form);
  auto* const x = static_cast<float*>(to);
  if (stored.form == StoredAs::kFloat)
    std::memcpy(to, from, static_cast<size_t>(features) * sizeof(float));
  else if (stored.numbers == nullptr)
    widen_stored(from, stored.form, 0, features, static_cast<int32_t*>(to));
  else if (stored.tables == 1)
    for (int64_t i = 0; i < features; ++i) x[i] = stored.numbers[from[i]];
  else
    for (int64_t i = 0; i < features; i += stored.tables)
      for (int64_t c = 0; c < stored.tables; ++c) x[i + c] = stored.numbers[c * 256 + from[i + c]];
}
// Copies the `count` elements of target `id`: int32 classes or fp32 values.
inline void copy_stored_target(const StoredSamples& stored, int64_t id, int64_t count, void* to) {
  const int64_t first = id * stored.target_stride;
  if (stored.target_form != StoredAs::kFloat)
    return widen_stored(stored.labels, stored.target_form, first, count, static_cast<int32_t*>(to));
  std::memcpy(to, static_cast<const float*>(stored.labels) + first, static_cast<size_t>(count) * sizeof(float));
}

// Conversion of bytes to values.
struct PixelValues {
  PixelValues(std::array<float, 2> a, Normalization n = {}) : affine(a), normalize(std::move(n)) {}
  explicit PixelValues(const DatasetSpec& spec) : affine(spec.affine), normalize(spec.normalize) {}
  std::array<float, 2> affine;
  Normalization normalize = {};
  // a * unit + b, or (unit - mean[channel]) / std[channel]; each operation is rounded once.
  float of(float unit, int64_t channel) const;
  // Throws Error(kUsage) for invalid parameters, if both affine and normalization are given, or if the number of
  // entries is neither 1 nor `channels` (0: not known yet).
  void check(int64_t channels = 0) const;
};
// The last axis of rank-3 samples, else 1.
int64_t channels_of(const std::vector<int64_t>& sample_shape);
// Applies `values` to fp32 samples [.., channels], as to pixels p/255.
void apply_values(const PixelValues& values, int64_t channels, TrackedBytes& samples);

// A warning on bytes of vectors, which may be a table: they are read as pixels.
std::vector<std::string> notes_of_bytes(bool ids, const SampleView& samples);

class ImageDataset final : public Dataset {
 public:
  // [size, form.shape...] row-major, of element type `stored`.
  struct Targets {
    TrackedBytes data;
    StoredAs stored = StoredAs::kUint8;
    TargetForm form;
    std::vector<std::string> class_names = {};  // empty, or one per class
  };
  // pixels: [size, shape...] row-major; labels: [size], each below `classes`. Throws Error(kUsage) as
  // PixelValues::check.
  ImageDataset(std::string name, std::vector<int64_t> shape, int64_t classes, const PixelValues& values,
               TrackedBytes pixels, TrackedBytes labels);
  // samples: [size, shape...] row-major: pixels (kUint8), or fp32 (kFloat), to which `values` are not applied.
  ImageDataset(std::string name, std::vector<int64_t> shape, const PixelValues& values, TrackedBytes samples,
               StoredAs stored, Targets targets);
  // ids: int32 [size, shape...] row-major, each below `vocabulary`.
  static std::unique_ptr<ImageDataset> of_ids(std::string name, std::vector<int64_t> shape, int64_t vocabulary,
                                              TrackedBytes ids, Targets targets);

  std::string name() const override { return name_; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return shape_; }
  int64_t classes() const override { return targets_.form.classes; }
  int64_t vocabulary() const override { return vocabulary_; }
  TargetForm target_form() const override { return targets_.form; }
  std::vector<std::string> class_names() const override { return targets_.class_names; }
  std::vector<std::string> feature_names() const override { return feature_names_; }
  std::shared_ptr<const TablePlan> table() const override { return plan_; }
  std::vector<std::string> notes() const override { return notes_; }
  void set_table(std::shared_ptr<const TablePlan> plan, std::vector<std::string> features,
                 std::vector<std::string> notes) {
    plan_ = std::move(plan);
    feature_names_ = std::move(features);
    notes_ = std::move(notes);
  }
  // Detection of anomalies: targets become values [1], 0 for class `normal` and 1 for the others. `alone`: the samples
  // of that class alone. Throws Error beginning with `where` if targets are not one class per sample, there is no such
  // class, or no sample of it.
  void mark_anomalies(std::string_view where, int64_t normal, bool alone);
  void sample(int64_t index, float* x, int32_t* label) const override;
  void sample_ids(int64_t index, int32_t* x, int32_t* label) const override;
  void example(int64_t index, void* x, void* target) const override;
  StoredSamples stored() const override;
  int64_t memory_bytes() const override { return samples_.size() + targets_.data.size(); }

 private:
  void one_class_example(int64_t index, void* x, int32_t* label) const;

  std::vector<std::string> feature_names_, notes_;
  std::shared_ptr<const TablePlan> plan_;
  std::string name_;
  std::vector<int64_t> shape_;
  int64_t features_, size_, vocabulary_ = 0;
  TrackedBytes samples_;
  StoredAs stored_;
  Targets targets_;
  int64_t tables_;            // 1, or one per channel
  std::vector<float> table_;  // [tables, 256]: value of every byte
};

// What array_keys() say: ids below `vocabulary` (0: samples are values), the label that does not count, and the class
// that is normal (-1: targets stay classes).
struct ArrayKeys {
  explicit ArrayKeys(const DatasetSpec& spec);
  int64_t vocabulary = 0;
  int64_t ignore = kIgnoredClass, normal = -1;
  // The data set, by mark_anomalies if there is a normal class; data.train then has its samples alone.
  std::unique_ptr<Dataset> marked(std::unique_ptr<ImageDataset> data, const DatasetSpec& spec) const;
  // Throws Error if `ignore` was set for labels [n], of which every one counts.
  void check_labels(std::string_view where, bool positions) const;
};

}  // namespace bitgrad::data
