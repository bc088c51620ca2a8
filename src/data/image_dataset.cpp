#include "data/image_dataset.h"

#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"

namespace bitgrad::data {

float PixelValues::of(float unit, int64_t channel) const {
  const auto at = [&](const std::vector<float>& entries) {
    return entries.size() == 1 ? entries[0] : entries[static_cast<size_t>(channel)];
  };
  if (normalize.given()) {
    const float centred = unit - at(normalize.mean);
    return centred / at(normalize.std);
  }
  const float scaled = affine[0] * unit;
  return scaled + affine[1];
}

void PixelValues::check(int64_t channels) const {
  require(std::isfinite(affine[0]) && std::isfinite(affine[1]) && affine[0] != 0.0f, "data", "affine: got [", affine[0],
          ", ", affine[1],
          "], expected two finite numbers, the first not 0. x = affine[0] * (pixel / 255) + affine[1].");
  if (!normalize.given()) return;
  require(affine == DatasetSpec{}.affine, "data", "got both affine and normalize, expected one of them.");
  const auto check_entries = [&](const std::vector<float>& entries, const char* name, bool above_zero) {
    require(!entries.empty(), "data", "normalize.", name, ": got no entry, expected 1, or one per channel.");
    require(channels == 0 || entries.size() == 1 || std::ssize(entries) == channels, "data", "normalize.", name,
            ": got ", entries.size(), " entries, expected 1", channels == 1 ? std::string() : concat(" or ", channels),
            " for images of ", channels, channels == 1 ? " channel." : " channels.");
    for (const float entry : entries)
      require(std::isfinite(entry) && (!above_zero || entry > 0.0f), "data", "normalize.", name, ": got ", entry,
              ", expected a finite number", above_zero ? " above 0." : ".");
  };
  check_entries(normalize.mean, "mean", false);
  check_entries(normalize.std, "std", true);
}

int64_t channels_of(const std::vector<int64_t>& sample_shape) {
  return sample_shape.size() == 3 ? sample_shape.back() : 1;
}

void apply_values(const PixelValues& values, int64_t channels, TrackedBytes& samples) {
  if (!values.normalize.given() && values.affine == DatasetSpec{}.affine) return;
  auto* const x = reinterpret_cast<float*>(samples.data());
  const int64_t count = samples.size() / int64_t{sizeof(float)};
  for (int64_t i = 0; i < count; ++i) x[i] = values.of(x[i], i % channels);
}

ImageDataset::ImageDataset(std::string name, std::vector<int64_t> shape, int64_t classes, const PixelValues& values,
                           TrackedBytes pixels, TrackedBytes labels)
    : ImageDataset(std::move(name), std::move(shape), values, std::move(pixels), StoredAs::kUint8,
                   Targets{std::move(labels), StoredAs::kUint8, {.shape = {}, .classes = classes}}) {}

ImageDataset::ImageDataset(std::string name, std::vector<int64_t> shape, const PixelValues& values,
                           TrackedBytes samples, StoredAs stored, Targets targets)
    : name_(std::move(name)),
      shape_(std::move(shape)),
      features_(features()),
      size_(targets.data.size() / (element_bytes(targets.stored) * targets.form.shape.numel())),
      samples_(std::move(samples)),
      stored_(stored),
      targets_(std::move(targets)),
      tables_(values.normalize.given() ? channels_of(shape_) : 1) {
  values.check(channels_of(shape_));
  ensure(samples_.size() == size_ * features_ * element_bytes(stored_), "data", name_, ": got ", samples_.size(),
         " bytes of samples, expected ", size_, " x ", features_, " x ", element_bytes(stored_));
  for (int64_t c = 0; c < tables_; ++c)
    for (int p = 0; p < 256; ++p) table_.push_back(values.of(static_cast<float>(p) / 255.0f, c));
}

StoredSamples ImageDataset::stored() const {
  return {samples_.data(),
          samples_.size(),
          features_,
          stored_ == StoredAs::kUint8 ? table_.data() : nullptr,
          targets_.data.data(),
          stored_,
          targets_.stored,
          targets_.form.shape.numel(),
          tables_};
}

void ImageDataset::write_sample(int64_t index, float* x) const {
  require(index >= 0 && index < size(), "data", name_, ": sample index: got ", index, ", expected 0 .. ", size() - 1,
          ".");
  const uint8_t* const from = samples_.data() + index * features_ * element_bytes(stored_);
  if (stored_ == StoredAs::kFloat)
    std::memcpy(x, from, static_cast<size_t>(features_) * sizeof(float));
  else if (tables_ == 1)
    for (int64_t i = 0; i < features_; ++i) x[i] = table_[from[i]];
  else
    for (int64_t i = 0; i < features_; i += tables_)
      for (int64_t c = 0; c < tables_; ++c) x[i + c] = table_[static_cast<size_t>(c * 256 + from[i + c])];
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
