#include "data/image_dataset.h"

#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"
#include "data/stored.h"

namespace bitgrad::data {

void check_affine(const std::array<float, 2>& affine) {
  require(std::isfinite(affine[0]) && std::isfinite(affine[1]) && affine[0] != 0.0f, "data", "affine: got [", affine[0],
          ", ", affine[1],
          "], expected two finite numbers, the first not 0. x = affine[0] * (pixel / 255) + affine[1].");
}

ImageDataset::ImageDataset(std::string name, std::vector<int64_t> shape, int64_t classes, std::array<float, 2> affine,
                           TrackedBytes pixels, TrackedBytes labels)
    : ImageDataset(std::move(name), std::move(shape), affine, std::move(pixels), StoredAs::kUint8,
                   Targets{std::move(labels), StoredAs::kUint8, {.shape = {}, .classes = classes}}) {}

ImageDataset::ImageDataset(std::string name, std::vector<int64_t> shape, std::array<float, 2> affine,
                           TrackedBytes samples, StoredAs stored, Targets targets)
    : name_(std::move(name)),
      shape_(std::move(shape)),
      features_(features()),
      size_(targets.data.size() / (element_bytes(targets.stored) * targets.form.shape.numel())),
      samples_(std::move(samples)),
      stored_(stored),
      targets_(std::move(targets)) {
  check_affine(affine);
  ensure(samples_.size() == size_ * features_ * element_bytes(stored_), "data", name_, ": got ", samples_.size(),
         " bytes of samples, expected ", size_, " x ", features_, " x ", element_bytes(stored_));
  for (int p = 0; p < 256; ++p) {
    const float unit = static_cast<float>(p) / 255.0f;
    const float scaled = affine[0] * unit;
    table_[static_cast<size_t>(p)] = scaled + affine[1];
  }
}

StoredSamples ImageDataset::stored() const {
  return {samples_.data(),      samples_.size(), features_,       stored_ == StoredAs::kUint8 ? table_.data() : nullptr,
          targets_.data.data(), stored_,         targets_.stored, targets_.form.shape.numel()};
}

void ImageDataset::write_sample(int64_t index, float* x) const {
  require(index >= 0 && index < size(), "data", name_, ": sample index: got ", index, ", expected 0 .. ", size() - 1,
          ".");
  const uint8_t* const from = samples_.data() + index * features_ * element_bytes(stored_);
  if (stored_ == StoredAs::kFloat)
    std::memcpy(x, from, static_cast<size_t>(features_) * sizeof(float));
  else
    for (int64_t i = 0; i < features_; ++i) x[i] = table_[from[i]];
}

void ImageDataset::sample(int64_t index, float* x, int32_t* label) const {
  require(targets_.form.classes > 0 && targets_.form.shape.rank() == 0, "data", name_,
          ": targets are not one class per sample: read it by example.");
  write_sample(index, x);
  copy_stored_target(stored(), index, 1, label);
}

void ImageDataset::example(int64_t index, void* x, void* target) const {
  write_sample(index, static_cast<float*>(x));
  copy_stored_target(stored(), index, targets_.form.shape.numel(), target);
}

}  // namespace bitgrad::data
