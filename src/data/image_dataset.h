// Examples that are in memory: samples of bytes, expanded to fp32 when one is asked for, or of fp32; classes or values
// as targets.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// What a byte stands for.
struct PixelValues {
  PixelValues(std::array<float, 2> a) : affine(a) {}
  explicit PixelValues(const DatasetSpec& spec) : affine(spec.affine), normalize(spec.normalize) {}
  std::array<float, 2> affine;
  Normalization normalize = {};
  // a * unit + b, or (unit - mean[channel]) / std[channel]; each operation rounded once.
  float of(float unit, int64_t channel) const;
  // Throws Error(kUsage) for numbers that cannot be used, both of the two, or a number of entries that is neither 1 nor
  // `channels` (0: not known yet).
  void check(int64_t channels = 0) const;
};
// The last axis of samples of rank 3; else 1.
int64_t channels_of(const std::vector<int64_t>& sample_shape);
// Samples of fp32 [.., channels] become what `values` make of them, as pixels p/255 do.
void apply_values(const PixelValues& values, int64_t channels, TrackedBytes& samples);

class ImageDataset final : public Dataset {
 public:
  // [size, form.shape...] row-major, stored as `stored`.
  struct Targets {
    TrackedBytes data;
    StoredAs stored = StoredAs::kUint8;
    TargetForm form;
    std::vector<std::string> class_names = {};  // empty, or one a class
  };
  // pixels: [size, shape...] row-major; labels: [size], each below `classes`. Error(kUsage) as PixelValues::check.
  ImageDataset(std::string name, std::vector<int64_t> shape, int64_t classes, const PixelValues& values,
               TrackedBytes pixels, TrackedBytes labels);
  // samples: [size, shape...] row-major: pixels (kUint8), or fp32 (kFloat), which `values` are not applied to.
  ImageDataset(std::string name, std::vector<int64_t> shape, const PixelValues& values, TrackedBytes samples,
               StoredAs stored, Targets targets);

  std::string name() const override { return name_; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return shape_; }
  int64_t classes() const override { return targets_.form.classes; }
  TargetForm target_form() const override { return targets_.form; }
  std::vector<std::string> class_names() const override { return targets_.class_names; }
  void sample(int64_t index, float* x, int32_t* label) const override;
  void example(int64_t index, void* x, void* target) const override;
  StoredSamples stored() const override;
  int64_t memory_bytes() const override { return samples_.size() + targets_.data.size(); }

 private:
  void write_sample(int64_t index, float* x) const;

  std::string name_;
  std::vector<int64_t> shape_;
  int64_t features_, size_;
  TrackedBytes samples_;
  StoredAs stored_;
  Targets targets_;
  int64_t tables_;            // 1, or one a channel
  std::vector<float> table_;  // [tables, 256] of every pixel value
};

}  // namespace bitgrad::data
