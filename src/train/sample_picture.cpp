// Image samples as small pictures.
#include <algorithm>
#include <cmath>

#include "data/base64.h"
#include "data/png.h"
#include "train/sample_picture.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kMostSide = 64, kLeastSide = 4;

struct Image {
  int64_t rows = 0, columns = 0, channels = 0;
  std::vector<float> values;  // 0 .. 255
};

bool is_image(const std::vector<int64_t>& shape) {
  const bool channels = shape.size() == 2 || (shape.size() == 3 && (shape[2] == 1 || shape[2] == 3));
  return channels && shape[0] >= kLeastSide && shape[1] >= kLeastSide && shape[0] <= 4096 && shape[1] <= 4096;
}

// The stored bytes if the data set has them, otherwise the values scaled from black to white.
std::vector<float> values_of(const Dataset& data, int64_t index) {
  std::vector<float> values(static_cast<size_t>(data.features()));
  const StoredSamples stored = data.stored();
  if (stored.codes != nullptr && stored.form == StoredAs::kUint8) {
    const uint8_t* bytes = static_cast<const uint8_t*>(stored.codes) + index * stored.stride;
    std::copy(bytes, bytes + values.size(), values.begin());
    return values;
  }
  const TargetForm target = data.target_form();
  std::vector<float> ignored(static_cast<size_t>(std::max<int64_t>(target.shape.numel(), 1)));  // holds int32 or fp32
  data.example(index, values.data(), ignored.data());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const float least = *low, range = *high - *low;
  for (float& x : values) x = range > 0 && std::isfinite(range) ? (x - least) / range * 255.0f : 0.0f;
  return values;
}

// Averages square blocks of pixels, so that no side is longer than kMostSide.
Image shrunk(const Image& in) {
  const int64_t times = (std::max(in.rows, in.columns) + kMostSide - 1) / kMostSide;
  if (times <= 1) return in;
  Image out{std::max<int64_t>(in.rows / times, 1), std::max<int64_t>(in.columns / times, 1), in.channels, {}};
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t c = 0; c < out.columns; ++c)
      for (int64_t k = 0; k < in.channels; ++k) {
        float sum = 0;
        int64_t count = 0;
        for (int64_t y = r * times; y < std::min((r + 1) * times, in.rows); ++y)
          for (int64_t x = c * times; x < std::min((c + 1) * times, in.columns); ++x, ++count)
            sum += in.values[static_cast<size_t>((y * in.columns + x) * in.channels + k)];
        out.values.push_back(sum / static_cast<float>(std::max<int64_t>(count, 1)));
      }
  return out;
}

}  // namespace

std::string picture_of(const Dataset& data, int64_t index) {
  const std::vector<int64_t> shape = data.sample_shape();
  if (!is_image(shape)) return {};
  const Image image = shrunk({shape[0], shape[1], shape.size() == 3 ? shape[2] : 1, values_of(data, index)});
  std::vector<uint8_t> pixels;
  for (const float x : image.values) pixels.push_back(static_cast<uint8_t>(std::lround(std::clamp(x, 0.0f, 255.0f))));
  return "data:image/png;base64," +
         data::base64(data::png_bytes(pixels.data(), image.rows, image.columns, image.channels));
}

}  // namespace bitgrad::detail
