// Transforms: what changes a sample of fp32 between the data set and the loader's batch, in training, such as noise.
//
// A transform is a pure function of (seed, epoch, index of the sample) and the sample: batches, threads, prefetching
// and a resume in the middle of an epoch change nothing. A program may write its own and register it under a name.
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
  // Changes sample `index` of the data set, x [sample]. draws: a stream of this transform's own, of (seed, epoch); what
  // it takes for sample i are elements i * draws_per_sample(sample) .. of it. Const calls may come from several threads
  // at once.
  virtual void apply(const RandomStream& draws, int64_t index, const Shape& sample, float* x) const = 0;
  virtual int64_t draws_per_sample(const Shape& sample) const { return sample.numel(); }
};

// The stream of the transform at `place` of a list.
RandomStream transform_stream(uint64_t seed, int64_t epoch, int64_t place);

struct TransformKind {
  std::string name = {};
  std::string doc = {};
  std::vector<Key> keys = {};
  std::function<std::shared_ptr<const Transform>(const Attributes& keys)> make =
      {};  // every key with a default is there
};

// Adds a transform from a program or plugin. Throws Error for a known or bad name, keys that do not read, or without
// `make`.
void register_transform(TransformKind kind);
// Built-in ones first, then in order of registration. Pointers stay valid.
std::vector<const TransformKind*> transform_kinds();
const TransformKind* find_transform(std::string_view name);
// Keys that are not given have their defaults. Throws Error for an unknown name or key, a required key that is missing,
// or a value out of range.
std::shared_ptr<const Transform> make_transform(const std::string& name, const Attributes& keys);

}  // namespace bitgrad
