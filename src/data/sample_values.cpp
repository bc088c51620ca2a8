#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/data/samples.h"
#include "data/image_dataset.h"

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
