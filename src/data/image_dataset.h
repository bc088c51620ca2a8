// In-memory examples: byte samples, converted to fp32 on access, or fp32 samples; targets are classes or values.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/samples.h"

namespace bitgrad::data {

// Conversion of bytes to values.
struct PixelValues {
  PixelValues(std::array<float, 2> a) : affine(a) {}
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

  std::string name() const override { return name_; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return shape_; }
  int64_t classes() const override { return targets_.form.classes; }
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
  void sample(int64_t index, float* x, int32_t* label) const override;
  void example(int64_t index, void* x, void* target) const override;
  StoredSamples stored() const override;
  int64_t memory_bytes() const override { return samples_.size() + targets_.data.size(); }

 private:
  void write_sample(int64_t index, float* x) const;

  std::vector<std::string> feature_names_, notes_;
  std::shared_ptr<const TablePlan> plan_;
  std::string name_;
  std::vector<int64_t> shape_;
  int64_t features_, size_;
  TrackedBytes samples_;
  StoredAs stored_;
  Targets targets_;
  int64_t tables_;            // 1, or one per channel
  std::vector<float> table_;  // [tables, 256]: value of every byte
};

}  // namespace bitgrad::data
