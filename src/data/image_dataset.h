// Images of bytes with one-byte labels, expanded to fp32 when a sample is asked for.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

class ImageDataset final : public Dataset {
 public:
  // pixels: [size, shape...] row-major; labels: [size], each below `classes`. Error(kUsage) for an affine that is not
  // finite or whose first number is 0.
  ImageDataset(std::string name, std::vector<int64_t> shape, int64_t classes, std::array<float, 2> affine,
               TrackedBytes pixels, TrackedBytes labels);

  std::string name() const override { return name_; }
  int64_t size() const override { return labels_.size(); }
  std::vector<int64_t> sample_shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  void sample(int64_t index, float* x, int32_t* label) const override;
  StoredSamples stored() const override {
    return {pixels_.data(), pixels_.size(), features_, table_.data(), labels_.data()};
  }
  int64_t memory_bytes() const override { return pixels_.size() + labels_.size(); }

 private:
  std::string name_;
  std::vector<int64_t> shape_;
  int64_t features_;
  int64_t classes_;
  TrackedBytes pixels_;
  TrackedBytes labels_;
  std::array<float, 256> table_;  // of every pixel value
};

// Throws Error(kUsage) for an affine that ImageDataset refuses: to be called before any work is done.
void check_affine(const std::array<float, 2>& affine);

}  // namespace bitgrad::data
