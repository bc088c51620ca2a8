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

// The value of each byte, [tables, 256].
static std::vector<float> byte_table(const PixelValues& values, int64_t tables) {
  std::vector<float> table;
  for (int64_t c = 0; c < tables; ++c)
    for (int p = 0; p < 256; ++p) table.push_back(values.of(static_cast<float>(p) / 255.0f, c));
  return table;
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
  if (stored_ == StoredAs::kUint8) table_ = byte_table(values, tables_);
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

std::unique_ptr<ImageDataset> ImageDataset::of_ids(std::string name, std::vector<int64_t> shape, int64_t vocabulary,
                                                   TrackedBytes ids, Targets targets) {
  auto out = std::make_unique<ImageDataset>(std::move(name), std::move(shape), DatasetSpec{}.affine, std::move(ids),
                                            StoredAs::kInt32, std::move(targets));
  out->vocabulary_ = vocabulary;
  return out;
}

void ImageDataset::example(int64_t index, void* to, void* target) const {
  check_index(index);
  copy_stored_sample(stored(), index, features_, to);
  copy_stored_target(stored(), index, targets_.form.shape.numel(), target);
}

void ImageDataset::one_class_example(int64_t index, void* x, int32_t* label) const {
  require(targets_.form.classes > 0 && targets_.form.shape.rank() == 0, "data", name_,
          ": targets are not one class per sample: read it by example.");
  example(index, x, label);
}

void ImageDataset::sample(int64_t index, float* x, int32_t* label) const {
  vocabulary_ > 0 ? Dataset::sample(index, x, label) : one_class_example(index, x, label);
}

void ImageDataset::sample_ids(int64_t index, int32_t* x, int32_t* label) const {
  vocabulary_ > 0 ? one_class_example(index, x, label) : Dataset::sample_ids(index, x, label);
}

void ImageDataset::mark_anomalies(std::string_view where, int64_t normal, bool alone) {
  require(targets_.form.classes > 0 && targets_.form.shape.rank() == 0, where, "normal_class: got ", normal,
          ", which is for labels [n], a class per sample; ", name_, " has ",
          targets_.form.classes > 0 ? "labels of positions" : "values as targets");
  require(normal < targets_.form.classes, where, "normal_class: got ", normal, ", expected 0 .. ",
          targets_.form.classes - 1, ", or -1 for none");
  std::vector<int64_t> kept;
  std::vector<float> anomalies;
  kept.reserve(static_cast<size_t>(size_));
  anomalies.reserve(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i) {
    int32_t label = 0;
    widen_stored(targets_.data.data(), targets_.stored, i, 1, &label);
    if (alone && label != normal) continue;
    kept.push_back(i);
    anomalies.push_back(label == normal ? 0.0f : 1.0f);
  }
  if (kept.empty())
    fail_with(ErrorCode::kData, where, "normal_class: no sample of ", name_, " has the class ", normal, ".");
  if (std::ssize(kept) < size_) {
    const int64_t row = features_ * element_bytes(stored_);
    TrackedBytes samples(std::ssize(kept) * row, MemoryKind::kDataset);
    for (size_t i = 0; i < kept.size(); ++i)
      std::memcpy(samples.data() + static_cast<int64_t>(i) * row, samples_.data() + kept[i] * row,
                  static_cast<size_t>(row));
    samples_ = std::move(samples);
    size_ = std::ssize(kept);
  }
  TrackedBytes targets(size_ * int64_t{sizeof(float)}, MemoryKind::kDataset);
  std::memcpy(targets.data(), anomalies.data(), static_cast<size_t>(targets.size()));
  targets_ = {std::move(targets), StoredAs::kFloat, {.shape = Shape{1}, .classes = 0}};
}

std::vector<Key> array_keys() {
  return {vocabulary_key(),
          {.name = "ignore_label",
           .type = Key::Type::kInt,
           .range = "[-2147483648, 2147483647]",
           .standard = "-100",
           .doc = "labels [n, positions]: the label of a position that counts nowhere, such as a prompt"},
          {.name = "normal_class",
           .type = Key::Type::kInt,
           .range = "[-1, 65535]",
           .standard = "-1",
           .doc = "detection of anomalies: targets are 0 for this class and 1 for all others, and data.train has the "
                  "samples of this class alone; -1: targets are the classes"}};
}
std::vector<Key> memory_keys() { return {vocabulary_key()}; }

ArrayKeys::ArrayKeys(const DatasetSpec& spec)
    : vocabulary(spec.keys.integer("vocabulary")),
      ignore(spec.keys.integer("ignore_label")),
      normal(spec.keys.integer("normal_class")) {}

std::unique_ptr<Dataset> ArrayKeys::marked(std::unique_ptr<ImageDataset> data, const DatasetSpec& spec) const {
  if (normal >= 0) data->mark_anomalies(concat("data.", spec.format), normal, spec.split == "train");
  return data;
}

void ArrayKeys::check_labels(std::string_view where, bool positions) const {
  require(positions || ignore == kIgnoredClass, where, "ignore_label: got ", ignore,
          ", which is for labels [n, positions]; here each sample has one label, and all count");
}

}  // namespace bitgrad::data

namespace bitgrad {

SampleValues::SampleValues(std::array<float, 2> affine, Normalization normalize)
    : affine_(affine), normalize_(std::move(normalize)) {
  const data::PixelValues values(affine_, normalize_);
  values.check();
  table_ =
      data::byte_table(values, std::max({std::ssize(normalize_.mean), std::ssize(normalize_.std), std::ptrdiff_t{1}}));
}

void SampleValues::write(const SampleView& s, int64_t first, int64_t count, float* to) const {
  const int64_t channels = data::channels_of(s.shape.dims()), tables = std::ssize(table_) / 256;
  require(tables == 1 || tables == channels, "data", s.name, ": got samples of ", s.shape, " (", channels,
          channels == 1 ? " channel" : " channels", "), expected the ", tables, " channels of the normalization");
  const int64_t each = s.shape.numel(), begin = first * each;
  if (s.stored == StoredAs::kUint8) {
    const auto* const from = static_cast<const uint8_t*>(s.data) + begin;
    for (int64_t i = 0; i < count * each; ++i)
      to[i] = table_[static_cast<size_t>((tables == 1 ? 0 : i % channels) * 256 + from[i])];
    return;
  }
  require(s.stored == StoredAs::kFloat, "data", s.name, ": got integers, expected bytes (uint8) or fp32 values");
  const data::PixelValues values(affine_, normalize_);
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
  require(s.stored != StoredAs::kFloat, "data", s.name, ": got fp32 values, expected ids (integers)");
  data::widen_stored(s.data, s.stored, first * s.shape.numel(), count * s.shape.numel(), to);
}

namespace data {

std::vector<std::string> notes_of_bytes(bool ids, const SampleView& samples) {
  const std::string text = ids ? std::string() : bytes_warning(samples);
  return text.empty() ? std::vector<std::string>{} : std::vector<std::string>{text};
}

}  // namespace data

}  // namespace bitgrad
