// A data set over arrays of the calling program: samples and targets in its memory, without a copy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "bitgrad/data/samples.h"

namespace bitgrad {

struct MemoryDatasetSpec {
  SampleView samples = {};  // uint8 (pixels) or fp32 values; or, with `vocabulary`, uint8, uint16 or int32 ids
  SampleView targets = {};  // kFloat: values [n, shape...]; uint8, uint16, int32: classes [n, shape...]
  int64_t classes = 0;      // number of classes; 0: the largest class + 1
  int64_t vocabulary = 0;   // number of ids; 0 if samples are values
  std::array<float, 2> affine{1.0f, 0.0f};  // as in DatasetSpec; applies to pixels and values
  Normalization normalize = {};
  std::shared_ptr<const void> owner = {};  // keeps the arrays alive; empty if the caller does
};
// Yields the same examples, bit for bit, as an idx or npy file of these arrays. Throws Error for mismatched shapes or
// counts, values that are not finite, and classes or ids out of range.
std::unique_ptr<Dataset> make_memory_dataset(const MemoryDatasetSpec& spec);

}  // namespace bitgrad
