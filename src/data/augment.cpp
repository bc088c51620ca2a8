#include "data/augment.h"

#include "bitgrad/base/error.h"

namespace bitgrad::data {

AugmentedImages augmented_images(const Dataset& dataset, const Augment& augment, uint64_t seed, int64_t epoch) {
  constexpr std::string_view kAugmentWhere = "data.train.augment";
  constexpr int64_t kMostPad = 1024;
  const std::vector<int64_t> shape = dataset.sample_shape();
  const StoredSamples stored = dataset.stored();
  require(augment.crop_pad >= 0 && augment.crop_pad <= kMostPad, kAugmentWhere, "crop_pad: got ", augment.crop_pad,
          ", expected 0 .. ", kMostPad, " pixels.");
  require(shape.size() == 2 || shape.size() == 3, kAugmentWhere, dataset.name(), ": got samples of shape ",
          Shape(shape), ", expected images of shape [rows, columns] or [rows, columns, channels].");
  require(stored.codes != nullptr && stored.form == StoredAs::kUint8 && stored.numbers != nullptr, kAugmentWhere,
          dataset.name(), ": got ",
          stored.form == StoredAs::kFloat ? "values of fp32" : "samples that are not stored as bytes",
          ", expected images of bytes: crops and mirror images are made of the bytes before normalization.");
  return {{seed, Purpose::kAugment, site_id("data.train"), static_cast<uint32_t>(epoch)},
          shape[0],
          shape[1],
          shape.size() == 3 ? shape[2] : 1,
          augment.crop_pad,
          augment.flip};
}

void write_augmented(const AugmentedImages& images, const StoredSamples& stored, int64_t index, float* x) {
  const AugmentedImages::Draw draw = images.draw(index);
  const uint8_t* const image = static_cast<const uint8_t*>(stored.codes) + index * stored.stride;
  constexpr int64_t kCodesOfByte = 256;
  for (int64_t row = 0; row < images.rows; ++row)
    for (int64_t column = 0; column < images.columns; ++column) {
      const int64_t from = images.source(draw, row, column);
      const float* table = stored.numbers;
      for (int64_t c = 0; c < images.channels; ++c) {
        *x++ = table[from < 0 ? 0 : image[from * images.channels + c]];
        if (stored.tables > 1) table += kCodesOfByte;
      }
    }
}

}  // namespace bitgrad::data
