#include "data/image_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/data/samples.h"
#include "data/formats.h"

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

std::vector<Key> array_keys() {
  return {vocabulary_key(),
          {.name = "ignore_label",
           .type = Key::Type::kInt,
           .range = "[-2147483648, 2147483647]",
           .standard = "-100",
           .doc = "labels [n, positions]: the label of a position that counts nowhere, such as a prompt"}};
}
std::vector<Key> memory_keys() { return {vocabulary_key()}; }

ArrayKeys::ArrayKeys(const DatasetSpec& spec)
    : vocabulary(spec.keys.integer("vocabulary")), ignore(spec.keys.integer("ignore_label")) {}

void ArrayKeys::check_labels(std::string_view where, bool positions) const {
  require(positions || ignore == kIgnoredClass, where, "ignore_label: got ", ignore,
          ", which is for labels [n, positions]; here each sample has one label, and all count");
}

IdDataset::IdDataset(std::string name, std::vector<int64_t> shape, int64_t vocabulary, TrackedBytes ids,
                     ImageDataset::Targets targets)
    : name_(std::move(name)),
      shape_(std::move(shape)),
      vocabulary_(vocabulary),
      size_(ids.size() / (features() * element_bytes(StoredAs::kInt32))),
      ids_(std::move(ids)),
      targets_(std::move(targets)) {}

StoredSamples IdDataset::stored() const {
  return {.codes = ids_.data(),
          .bytes = ids_.size(),
          .stride = features(),
          .numbers = nullptr,
          .labels = targets_.data.data(),
          .form = StoredAs::kInt32,
          .target_form = targets_.stored,
          .target_stride = targets_.form.shape.numel()};
}

void IdDataset::example(int64_t index, void* x, void* target) const {
  require(index >= 0 && index < size_, "data", name_, ": sample index: got ", index, ", expected 0 .. ", size_ - 1,
          ".");
  const int64_t each = features();
  std::copy_n(reinterpret_cast<const int32_t*>(ids_.data()) + index * each, each, static_cast<int32_t*>(x));
  copy_stored_target(stored(), index, targets_.form.shape.numel(), target);
}

void IdDataset::sample_ids(int64_t index, int32_t* x, int32_t* label) const {
  require(targets_.form.classes > 0 && targets_.form.shape.rank() == 0, "data", name_,
          ": targets are not one class per sample: read it by example.");
  example(index, x, label);
}

}  // namespace bitgrad::data

namespace bitgrad {

namespace {

constexpr int64_t kBytes = 256;

data::PixelValues pixel_values(std::array<float, 2> affine, const Normalization& normalize) {
  data::PixelValues values(affine);
  values.normalize = normalize;
  return values;
}

}  // namespace

SampleValues::SampleValues(std::array<float, 2> affine, Normalization normalize)
    : affine_(affine), normalize_(std::move(normalize)) {
  const data::PixelValues values = pixel_values(affine_, normalize_);
  values.check();
  const auto tables = std::max<size_t>({normalize_.mean.size(), normalize_.std.size(), 1});
  for (size_t c = 0; c < tables; ++c)
    for (int64_t p = 0; p < kBytes; ++p)
      table_.push_back(values.of(static_cast<float>(p) / 255.0f, static_cast<int64_t>(c)));
}

void SampleValues::write(const SampleView& s, int64_t first, int64_t count, float* to) const {
  const int64_t channels = data::channels_of(s.shape.dims()), tables = std::ssize(table_) / kBytes;
  require(tables == 1 || tables == channels, "data", s.name, ": got samples of ", s.shape, " (", channels,
          channels == 1 ? " channel" : " channels", "), expected the ", tables, " channels of the normalization");
  const int64_t each = s.shape.numel(), begin = first * each;
  if (s.stored == StoredAs::kUint8) {
    const auto* const from = static_cast<const uint8_t*>(s.data) + begin;
    for (int64_t i = 0; i < count * each; ++i)
      to[i] = table_[static_cast<size_t>((tables == 1 ? 0 : i % channels) * kBytes + from[i])];
    return;
  }
  require(s.stored == StoredAs::kFloat, "data", s.name, ": got integers, expected bytes (uint8) or fp32 values");
  const data::PixelValues values = pixel_values(affine_, normalize_);
  const auto* const from = static_cast<const float*>(s.data) + begin;
  const bool same = !normalize_.given() && affine_ == DatasetSpec{}.affine;
  for (int64_t i = 0; i < count * each; ++i) to[i] = same ? from[i] : values.of(from[i], i % channels);
}

std::string bytes_warning(const SampleView& s) {
  if (s.stored != StoredAs::kUint8 || s.shape.rank() > 1) return {};
  return concat(
      s.name, ": got bytes (uint8) of ", s.shape,
      " per sample, which are read as pixels: divided by 255. If they are numbers of a table, pass fp32 values");
}

void write_ids(const SampleView& s, int64_t first, int64_t count, int32_t* to) {
  const int64_t begin = first * s.shape.numel(), n = count * s.shape.numel();
  const auto widen = [&](const auto* from) { std::copy_n(from + begin, n, to); };
  require(s.stored != StoredAs::kFloat, "data", s.name, ": got fp32 values, expected ids (integers)");
  if (s.stored == StoredAs::kUint8) return widen(static_cast<const uint8_t*>(s.data));
  if (s.stored == StoredAs::kUint16) return widen(static_cast<const uint16_t*>(s.data));
  widen(static_cast<const int32_t*>(s.data));
}

namespace data {

std::vector<std::string> notes_of_bytes(bool ids, const SampleView& samples) {
  const std::string text = ids ? std::string() : bytes_warning(samples);
  return text.empty() ? std::vector<std::string>{} : std::vector<std::string>{text};
}

}  // namespace data

}  // namespace bitgrad
