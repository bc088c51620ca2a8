// Map: new values for learned steps that carry no signal (src/nn/step_signal.cpp), one call per block.
#pragma once

#include "kernels/map/numbers.h"
#include "nn/map/list.h"

namespace bitgrad::maps {

struct RefitSteps {
  static constexpr int64_t kMost = 4096;  // elements of a block that are read

  // Values of a [rows, cols] matrix: one of the pointers; sums are multiplied by their scale.
  const float* wide = nullptr;
  const uint16_t* narrow = nullptr;  // bf16
  const int32_t* sums = nullptr;
  q::Elements elements;
  int64_t count = 0;  // elements of a block; element i of block j is at j * block + i * each
  int64_t block = 0, each = 1;
  uint32_t step = 0, every = 1;  // the optimizer step, plus *live
  const uint32_t* live = nullptr;
  float qmin = 0, qmax = 0, floor = 0, far = 0;
  float factor = 1, per_unit = 1, constant = 0;  // StepFit
  float middle = 0;
  bool lowest = false;
  float* steps = nullptr;
  float* offsets = nullptr;    // nullptr: the scheme has none
  int32_t* changed = nullptr;  // 0 or 1
  uint32_t* flags = nullptr;   // set if a step changes

  BITGRAD_HD float value(int64_t e) const {
    if (wide != nullptr) return wide[e];
    if (narrow != nullptr) return q::of_bits(static_cast<uint32_t>(narrow[e]) << 16);
    const float v = static_cast<float>(sums[e]);
    return elements.map.scale == nullptr ? v : v * elements.map.scale[elements.block(e)];
  }
  // The i-th of the elements that are read: all, or spread evenly by multiples of the golden ratio.
  BITGRAD_HD int64_t place(int64_t i) const {
    if (count <= kMost) return i;
    const uint64_t part = static_cast<uint32_t>(i) * 0x9E3779B9u;
    return static_cast<int64_t>((part * static_cast<uint64_t>(count)) >> 32);
  }
  BITGRAD_HD void operator()(int64_t j) const {
    changed[j] = 0;
    const float s = steps[j], m = offsets == nullptr ? 0.0f : offsets[j];
    const bool fell = s <= floor;
    if (!fell && (live == nullptr ? step : step + *live) % every != 0) return;
    int64_t n = kMost;
    if (count < n) n = count;
    float sum = 0, away = 0, low = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float v = value(j * block + place(i) * each), d = v - m, u = d * per_unit / s;
      if (!fell && (u > qmin) & (u < qmax)) return;
      sum += q::magnitude(v);
      away += q::magnitude(d);
      low = q::smaller(v, low);
    }
    const float size = static_cast<float>(n);
    if (!q::finite(sum) || (!fell && !(away / size * factor * per_unit >= far * s))) return;
    const float fresh = constant > 0 ? constant : q::larger(sum / size * factor, floor);
    const float offset = lowest ? low - (fresh <= floor ? middle * floor : 0.0f) : 0.0f;
    if (fresh == s && (offsets == nullptr || offset == m)) return;
    steps[j] = fresh;
    if (offsets != nullptr) offsets[j] = offset;
    changed[j] = 1;
    or_flag(flags, 1u);
  }
};

}  // namespace bitgrad::maps
