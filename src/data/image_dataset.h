// Examples that are in memory: samples of bytes, expanded to fp32 when one is asked for, or of fp32; classes or values
// as targets.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

class ImageDataset final : public Dataset {
 public:
  // [size, form.shape...] row-major, stored as `stored`.
  struct Targets {
    TrackedBytes data;
    StoredAs stored = StoredAs::kUint8;
    TargetForm form;
  };
  // pixels: [size, shape...] row-major; labels: [size], each below `classes`. Error(kUsage) for an affine that is not
  // finite or whose first number is 0.
  ImageDataset(std::string name, std::vector<int64_t> shape, int64_t classes, std::array<float, 2> affine,
               TrackedBytes pixels, TrackedBytes labels);
  // samples: [size, shape...] row-major: pixels (kUint8), or fp32 (kFloat), which the affine is not applied to.
  ImageDataset(std::string name, std::vector<int64_t> shape, std::array<float, 2> affine, TrackedBytes samples,
               StoredAs stored, Targets targets);

  std::string name() const override { return name_; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> sample_shape() const override { return shape_; }
  int64_t classes() const override { return targets_.form.classes; }
  TargetForm target_form() const override { return targets_.form; }
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
  std::array<float, 256> table_;  // of every pixel value
};

// Throws Error(kUsage) for an affine that ImageDataset refuses: to be called before any work is done.
void check_affine(const std::array<float, 2>& affine);

}  // namespace bitgrad::data
