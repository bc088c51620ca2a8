// Keys of layers that read windows of images, and conversion of their input to images.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"

namespace bitgrad::detail {

// One number for both axes, or [y, x].
inline Key pair_key(std::string name, std::string standard, std::string doc) {
  return {.name = std::move(name),
          .type = Key::Type::kInts,
          .range = "[1, 1024]",
          .standard = std::move(standard),
          .doc = std::move(doc) + ": a number, or [y, x]",
          .count = 2};
}
// One number for all sides, or [top, left, bottom, right]; with `same` also the word `same`.
inline Key sides_key(std::string name, std::string standard, std::string doc, bool same) {
  Key key{.name = std::move(name),
          .type = Key::Type::kInts,
          .range = "[0, 1024]",
          .standard = std::move(standard),
          .doc = std::move(doc) + ": a number, or [top, left, bottom, right]",
          .count = 4};
  if (same) {
    key.choices = {"same"};
    key.doc += ", or same, which makes ceil(size / stride) outputs";
  }
  return key;
}

inline std::array<int64_t, 2> pair_of(const Attributes& keys, std::string_view name) {
  const std::vector<int64_t> v = keys.integers(name, 2);
  return {v[0], v[1]};
}
inline std::array<int64_t, 4> sides_of(const Attributes& keys, std::string_view name) {
  const std::vector<int64_t> v = keys.integers(name, 4);
  return {v[0], v[1], v[2], v[3]};
}
inline bool is_same(const Attributes& keys, std::string_view name) {
  const std::string* const word = keys.find_text(name);
  return word != nullptr && *word == "same";
}

// The form as images [h,w,c]; [h,w] counts as one channel. Throws Error for other samples.
inline Form image_form(std::string_view where, const Form& in) {
  if (in.sample.rank() == 3) return in;
  const bool plane = in.sample.rank() == 2;
  require(plane, where, "needs samples [h,w,c], or values [h,w]: got ", in);
  require(in.dtype.is_float(), where, "needs samples [h,w,c], or values [h,w]: got ", in,
          ", codes of images without a channel axis. Put unsqueeze before the quantize layer");
  Form out = in;
  out.sample = {in.sample[0], in.sample[1], 1};
  return out;
}
// The tensor in that form.
inline Var as_image(const Var& x) {
  const Shape& s = x.shape();
  return s.rank() == 3 ? reshape(x, {s[0], s[1], s[2], 1}) : x;
}

// ---- pooling layers: their keys, and the forms of images

inline std::vector<Key> pool_keys() {
  Key stride = pair_key("stride", "", "pixels between windows");
  stride.doc += "; default: size";
  return {pair_key("size", "!", "rows and columns of a window"), stride,
          sides_key("padding", "0", "pixels outside the image, which are never counted", /*same=*/false)};
}

inline PoolOptions pool_options(const Attributes& keys) {
  PoolOptions out;
  out.size = pair_of(keys, "size");
  out.stride = keys.contains("stride") ? pair_of(keys, "stride") : out.size;
  out.padding = sides_of(keys, "padding");
  return out;
}

// The output form of a pool.
inline Form pooled(std::string_view where, const Form& image, const PoolOptions& options) {
  const auto [oh, ow] = pool_output(where, image.sample[0], image.sample[1], options);
  Form out = image;
  out.sample = {oh, ow, image.sample[2]};
  return out;
}

}  // namespace bitgrad::detail
