// Device version of the draws of bitgrad::RandomStream (docs/numerics.md section 7), eight consecutive elements at a
// time, with a single Philox block where all eight share it.
#pragma once

#include "bitgrad/base/device.h"
#include "bitgrad/base/rng.h"
#include "cuda/device/builtins.h"

namespace bitgrad::cuda {

struct Draws8 {
  uint16_t v[8];
};

// 16-bit draws of elements e .. e + 7. Shifts whole words by constant distances, so that everything stays in registers.
BITGRAD_DEVICE inline Draws8 draws8(const RandomStream& stream, uint64_t e) {
  const int shift = static_cast<int>(e % 8);
  const PhiloxBlock low = stream.block(e / 8);
  uint32_t w[8] = {low[0], low[1], low[2], low[3], 0, 0, 0, 0};
  if (shift != 0) {
    const PhiloxBlock high = stream.block(e / 8 + 1);
    for (int k = 0; k < 4; ++k) w[4 + k] = high[k];
    if ((shift & 4) != 0)
      for (int k = 0; k < 6; ++k) w[k] = w[k + 2];
    if ((shift & 2) != 0)
      for (int k = 0; k < 5; ++k) w[k] = w[k + 1];
    if ((shift & 1) != 0)
      for (int k = 0; k < 4; ++k) w[k] = (w[k] >> 16) | (w[k + 1] << 16);
  }
  Draws8 out;
  for (int k = 0; k < 8; ++k) out.v[k] = static_cast<uint16_t>(k % 2 == 0 ? w[k / 2] : w[k / 2] >> 16);
  return out;
}

}  // namespace bitgrad::cuda
