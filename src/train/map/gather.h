// Gathers the samples of a batch from a data set that resides on the device as stored (StoredSamples, data/dataset.h).
#pragma once

#include "data/augment.h"
#include "train/map/list.h"

namespace bitgrad::maps {

// x[r, c] = numbers[c % tables][code] or tokens[r, c] = code, where code = codes[ids[r] * stride + c] has one, two or
// four bytes; or x[r, c] is the stored fp32 value itself. Index: r * pieces() + the piece of kCodes codes.
struct GatherSamples {
  static constexpr int64_t kCodes = 4;
  const void* codes;
  int64_t code_bytes;
  const int64_t* ids;    // in range
  const float* numbers;  // [tables, 256], or nullptr
  float* x;              // [rows, features], for codes with numbers, or fp32 values
  int32_t* tokens;       // [rows, features], for ids
  int64_t features, stride, tables;

  BITGRAD_HD int64_t pieces() const { return (features + kCodes - 1) / kCodes; }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / pieces(), begin = (i - r * pieces()) * kCodes;
    const int64_t end = begin + kCodes < features ? begin + kCodes : features;
    const int64_t from = ids[r] * stride, to = r * features;
    for (int64_t c = begin; c < end; ++c) {
      if (numbers != nullptr)
        x[to + c] = numbers[(tables == 1 ? 0 : c % tables * 256) + static_cast<const uint8_t*>(codes)[from + c]];
      else if (tokens == nullptr)
        x[to + c] = static_cast<const float*>(codes)[from + c];
      else
        tokens[to + c] = id_at(from + c);
    }
  }
  BITGRAD_HD int32_t id_at(int64_t at) const {
    if (code_bytes == 1) return static_cast<const uint8_t*>(codes)[at];
    if (code_bytes == 2) return static_cast<const uint16_t*>(codes)[at];
    return static_cast<const int32_t*>(codes)[at];
  }
};

// The same for images of bytes, augmented by their draws (data/augment.h). Index: r * pieces() + the piece of kPixels
// pixels.
struct GatherAugmented {
  static constexpr int64_t kPixels = 4;
  const uint8_t* codes;
  const int64_t* ids;
  const float* numbers;  // [tables, 256]
  float* x;              // [rows, pixels * channels]
  int64_t stride, tables;
  data::AugmentedImages images;

  BITGRAD_HD int64_t pixels() const { return images.rows * images.columns; }
  BITGRAD_HD int64_t pieces() const { return (pixels() + kPixels - 1) / kPixels; }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / pieces(), begin = (i - r * pieces()) * kPixels;
    const int64_t end = begin + kPixels < pixels() ? begin + kPixels : pixels();
    const uint8_t* const image = codes + ids[r] * stride;
    const data::AugmentedImages::Draw draw = images.draw(ids[r]);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t row = p / images.columns, from = images.source(draw, row, p - row * images.columns);
      for (int64_t c = 0; c < images.channels; ++c)
        x[(r * pixels() + p) * images.channels + c] =
            numbers[(tables == 1 ? 0 : c * 256) + (from < 0 ? 0 : image[from * images.channels + c])];
    }
  }
};

}  // namespace bitgrad::maps
