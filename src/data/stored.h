// Targets in their stored form (StoredSamples).
#pragma once

#include <algorithm>
#include <cstring>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// Copies the `count` elements of target `id`: int32 classes or fp32 values.
inline void copy_stored_target(const StoredSamples& stored, int64_t id, int64_t count, void* to) {
  const int64_t first = id * stored.target_stride;
  const auto widen = [&](const auto* from) { std::copy_n(from + first, count, static_cast<int32_t*>(to)); };
  if (stored.target_form == StoredAs::kUint8) return widen(static_cast<const uint8_t*>(stored.labels));
  if (stored.target_form == StoredAs::kUint16) return widen(static_cast<const uint16_t*>(stored.labels));
  if (stored.target_form == StoredAs::kInt32) return widen(static_cast<const int32_t*>(stored.labels));
  std::memcpy(to, static_cast<const float*>(stored.labels) + first, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace bitgrad::data
