#include "bitgrad/data/transform.h"

#include "base/registration.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/augment.h"

namespace bitgrad {

#define BITGRAD_TRANSFORM(kind) TransformKind kind();
namespace data {
#include "data/transforms.inc"
}
#undef BITGRAD_TRANSFORM

namespace {

constexpr std::string_view kTransformWhere = "transform";

detail::KindList<TransformKind>& transforms() {
#define BITGRAD_TRANSFORM(kind) data::kind(),
  static detail::KindList<TransformKind> all({
#include "data/transforms.inc"
  });
#undef BITGRAD_TRANSFORM
  return all;
}

}  // namespace

RandomStream transform_stream(uint64_t seed, int64_t epoch, int64_t place) {
  return {seed, Purpose::kTransform, site_id(concat("data.train.transforms.", place)), static_cast<uint32_t>(epoch)};
}

void register_transform(TransformKind kind) {
  constexpr std::string_view kRegister = "register_transform";
  check_kind_name(kRegister, kind.name);
  require(static_cast<bool>(kind.make), kRegister, "transform '", kind.name, "' has no make function");
  check_keys(kRegister, concat("transform '", kind.name, '\''), kind.keys);
  transforms().add(kRegister, "a transform", std::move(kind));
}

std::vector<const TransformKind*> transform_kinds() { return transforms().all(); }
const TransformKind* find_transform(std::string_view name) { return transforms().find(name); }

std::shared_ptr<const Transform> make_transform(const std::string& name, const Attributes& keys) {
  const TransformKind* const kind = find_transform(name);
  if (kind == nullptr) fail(kTransformWhere, unknown_name("transform", name, transforms().names()));
  auto made = kind->make(completed(concat(kTransformWhere, ' ', kind->name), kind->keys, keys));
  require(made != nullptr, kTransformWhere, kind->name, ": its make function returned nothing.");
  return made;
}

}  // namespace bitgrad

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
