// A data set of arrays that a program has: samples and targets in its memory, without a copy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "bitgrad/data/samples.h"

namespace bitgrad {

struct MemoryDatasetSpec {
  SampleView samples = {};  // uint8 (pixels), fp32 values, or ids: uint8, uint16, int32 with `vocabulary`
  SampleView targets = {};  // kFloat: values [n, shape...]; uint8, uint16, int32: classes [n, shape...]
  int64_t classes = 0;      // of classes; 0: the largest one and 1
  int64_t vocabulary = 0;   // of ids; 0: samples are values
  std::array<float, 2> affine{1.0f, 0.0f};  // as DatasetSpec: of pixels and of values
  Normalization normalize = {};
  std::shared_ptr<const void> owner = {};  // keeps the arrays alive; empty: the caller does
};
// The examples are those of an idx or npy file of the same arrays, bit for bit. Throws Error for shapes and numbers
// that do not fit, values that are not finite, and classes or ids out of range.
std::unique_ptr<Dataset> make_memory_dataset(const MemoryDatasetSpec& spec);

}  // namespace bitgrad
