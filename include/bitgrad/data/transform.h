// Transforms: training-time changes of fp32 samples between data set and batch, such as noise.
//
// A transform is a pure function of (seed, epoch, sample index) and the sample: batch size, threads, prefetching and
// resuming in the middle of an epoch do not affect it. A program may implement its own and register it under a name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

class Transform {
 public:
  virtual ~Transform() = default;
  // Modifies sample `index` of the data set in place, x [sample]. draws: this transform's own stream, a function of
  // (seed, epoch); sample i uses elements i * draws_per_sample(sample) .. (i + 1) * draws_per_sample(sample) - 1. May
  // be called from several threads concurrently.
  virtual void apply(const RandomStream& draws, int64_t index, const Shape& sample, float* x) const = 0;
  virtual int64_t draws_per_sample(const Shape& sample) const { return sample.numel(); }
};

// The stream of the transform at index `place` of the list.
RandomStream transform_stream(uint64_t seed, int64_t epoch, int64_t place);

struct TransformKind {
  std::string name = {};
  std::string doc = {};
  std::vector<Key> keys = {};
  std::function<std::shared_ptr<const Transform>(const Attributes& keys)> make =
      {};  // keys with a default always have a value
};

// Registers a transform from a program or plugin. Throws Error for an invalid or taken name, keys that do not parse, or
// a missing `make`.
void register_transform(TransformKind kind);
// Built-in ones first, then in order of registration. The pointers stay valid.
std::vector<const TransformKind*> transform_kinds();
const TransformKind* find_transform(std::string_view name);
// Omitted keys have their defaults. Throws Error for an unknown name or key, a missing required key, or a value out of
// range.
std::shared_ptr<const Transform> make_transform(const std::string& name, const Attributes& keys);

// Random augmentation of byte images, applied before bytes become values: a crop of the image padded with `crop_pad`
// pixels of byte 0 on each side, and a left-right mirror with probability 1/2 (He et al. 2015, section 4.2). Drawn anew
// for each sample in each epoch, by the sample's index in the data set (docs/numerics.md section 7).
struct Augment {
  int64_t crop_pad = 0;  // 0 .. 1024
  bool flip = false;
  bool given() const { return crop_pad != 0 || flip; }
  friend bool operator==(const Augment&, const Augment&) = default;
};

}  // namespace bitgrad
