#include "data/image_dataset.h"

#include <cmath>

#include "bitgrad/base/error.h"

namespace bitgrad::data {

void check_affine(const std::array<float, 2>& affine) {
  require(std::isfinite(affine[0]) && std::isfinite(affine[1]) && affine[0] != 0.0f, "data", "affine: got [", affine[0],
          ", ", affine[1],
          "], expected two finite numbers, the first not 0. x = affine[0] * (pixel / 255) + affine[1].");
}

ImageDataset::ImageDataset(std::string name, std::vector<int64_t> shape, int64_t classes, std::array<float, 2> affine,
                           TrackedBytes pixels, TrackedBytes labels)
    : name_(std::move(name)),
      shape_(std::move(shape)),
      features_(features()),
      classes_(classes),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)) {
  check_affine(affine);
  ensure(pixels_.size() == labels_.size() * features_, "data", name_, ": got ", pixels_.size(), " pixels, expected ",
         labels_.size(), " x ", features_);
  for (int p = 0; p < 256; ++p) {
    const float unit = static_cast<float>(p) / 255.0f;
    const float scaled = affine[0] * unit;
    table_[static_cast<size_t>(p)] = scaled + affine[1];
  }
}

void ImageDataset::sample(int64_t index, float* x, int32_t* label) const {
  require(index >= 0 && index < size(), "data", name_, ": sample index: got ", index, ", expected 0 .. ", size() - 1,
          ".");
  const uint8_t* pixels = pixels_.data() + index * features_;
  for (int64_t i = 0; i < features_; ++i) x[i] = table_[pixels[i]];
  *label = labels_.data()[index];
}

}  // namespace bitgrad::data
