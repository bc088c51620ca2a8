// Rows of images as the values that depthwise convolutions multiply, on the CPU: codes are unpacked once and kept while
// windows need them.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/conv/loops.h"
#include "kernels/elementwise/loops.h"
#include "kernels/quantize/chunk_params.h"

namespace bitgrad::kernels::conv {

// Layout of an unpacked row of an image with `channels` channels.
enum class RowForm : uint8_t {
  kPlain,     // [pixels, channels]
  kRepeated,  // [pixels, channels * multiplier]: each value `multiplier` times
  kSplit      // [multiplier, pixels, channels / multiplier]: plane j holds channels j, j + multiplier, ..
};

template <typename T>
class OpenRows {
 public:
  // slots: number of rows in use at a time, which are neighbours in one image.
  OpenRows(const DepthwiseImages& images, int64_t height, int64_t width, int64_t channels, RowForm form,
           int64_t multiplier, int64_t slots)
      : images_(images),
        height_(height),
        width_(width),
        channels_(channels),
        multiplier_(multiplier),
        form_(multiplier == 1 ? RowForm::kPlain : form) {
    in_place_ = form_ == RowForm::kPlain && floats() && images.scale.trivial();
    if (in_place_) return;
    slots_ = std::min(slots, height);
    row_ = width * channels * (form_ == RowForm::kRepeated ? multiplier : 1);
    rows_ = std::make_unique<Workspace>(slots_ * row_ * size());
    if (form_ != RowForm::kPlain) plain_ = std::make_unique<Workspace>(width * channels * size());
    held_.assign(static_cast<size_t>(slots_), -1);
  }

  // Elements between consecutive pixels.
  int64_t step() const {
    if (in_place_) return images_.pixel / size();
    if (form_ == RowForm::kPlain) return channels_;
    return form_ == RowForm::kRepeated ? channels_ * multiplier_ : channels_ / multiplier_;
  }
  // Row y of an image; valid until a row is requested that is not within `slots` of it.
  const T* row(int64_t image, int64_t y) {
    const char* const from =
        static_cast<const char*>(images_.data) + image * images_.image + y * width_ * images_.pixel;
    if (in_place_) return reinterpret_cast<const T*>(from);
    const int64_t id = image * height_ + y;
    T* const to = rows_->template as<T>() + y % slots_ * row_;
    if (held_[static_cast<size_t>(y % slots_)] == id) return to;
    held_[static_cast<size_t>(y % slots_)] = id;
    if (form_ == RowForm::kPlain) {
      open(from, to);
      return to;
    }
    const T* plain = reinterpret_cast<const T*>(from);
    int64_t pixel = images_.pixel / size();
    if (!floats() || !images_.scale.trivial()) {
      open(from, plain_->template as<T>());
      plain = plain_->template as<T>();
      pixel = channels_;
    }
    spread(plain, pixel, to);
    return to;
  }

 private:
  static constexpr int64_t size() { return static_cast<int64_t>(sizeof(T)); }
  static constexpr DType number() { return sizeof(T) == 4 ? dtypes::fp32 : dtypes::fp64; }
  bool floats() const { return images_.dtype == number(); }

  void spread(const T* from, int64_t pixel, T* to) const {
    const int64_t planes = form_ == RowForm::kSplit ? multiplier_ : 1, each = channels_ / planes;
    for (int64_t x = 0; x < width_; ++x, from += pixel) {
      if (form_ == RowForm::kRepeated) {
        for (int64_t c = 0; c < channels_; ++c)
          for (int64_t j = 0; j < multiplier_; ++j) *to++ = from[c];
      } else {
        for (int64_t j = 0; j < planes; ++j)
          for (int64_t c = 0; c < each; ++c) to[(j * width_ + x) * each + c] = from[c * planes + j];
      }
    }
  }

  // [width, channels], dense.
  void open(const char* from, T* to) const {
    if constexpr (sizeof(T) == 8) {
      ensure(floats() && images_.scale.trivial(), "depthwise", "doubles of ", images_.dtype);
    } else {
      if (images_.pixel * 8 == channels_ * images_.dtype.bits()) {
        numbers(from, width_ * channels_, to);
      } else {
        for (int64_t x = 0; x < width_; ++x) numbers(from + x * images_.pixel, channels_, to + x * channels_);
      }
      if (!images_.scale.trivial()) values(to);
    }
  }
  void numbers(const char* from, int64_t n, float* to) const {
    if (images_.dtype == dtypes::bf16)
      elementwise::loops().from_bf16(n, reinterpret_cast<const uint16_t*>(from), to);
    else
      unpack_row(images_.dtype, from, 0, n, to);
  }
  // Converts the codes of a row to values.
  void values(float* row) const {
    using namespace quantize_loops;
    const QuantizeLoops& loops = quantize_loops::loops();
    const ScaleMap& map = images_.scale;
    ChunkParamReader params(loops, map);
    const int64_t run = map.per_tensor() ? width_ * channels_ : channels_;
    for (int64_t first = 0; first < width_ * channels_; first += run) {
      for (int64_t c = 0; c < run; c += kChunk) {
        const int64_t n = std::min(kChunk, run - c);
        float* const to = row + first + c;
        loops.value(n, to, params.read(0, c, n), map.zero != nullptr, map.offset != nullptr, to);
      }
    }
  }

  const DepthwiseImages images_;
  int64_t height_, width_, channels_, multiplier_;
  RowForm form_;
  bool in_place_ = false;
  int64_t slots_ = 0, row_ = 0;
  std::unique_ptr<Workspace> rows_, plain_;
  std::vector<int64_t> held_;  // per slot: which row of all images it holds
};

}  // namespace bitgrad::kernels::conv
