// Shared by pooling layers: their keys, and the forms of images.
#pragma once

#include "bitgrad/ops/spatial.h"
#include "nn/layers/windows_keys.h"

namespace bitgrad::detail {

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
