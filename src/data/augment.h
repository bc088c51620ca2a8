// Random crops and mirroring of stored byte images: maps elements of the augmented image to the stored one. Shared by
// the loader and by the map that gathers on a device (docs/numerics.md section 7).
#pragma once

#include "bitgrad/base/device.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/loader.h"

namespace bitgrad::data {

// Images [rows, columns, channels] as stored.
struct AugmentedImages {
  RandomStream draws;  // a function of (seed, epoch)
  int64_t rows, columns, channels, pad;
  bool flip;

  struct Draw {
    int64_t down, right;  // offset of the crop in the stored image, -pad .. pad
    bool mirrored;
  };
  // Draw for sample `index`: block `index` of the stream, words w0 (rows), w1 (columns), w2 (mirror).
  BITGRAD_HD Draw draw(int64_t index) const {
    const PhiloxBlock words = draws.block(static_cast<uint64_t>(index));
    const auto places = static_cast<uint64_t>(2 * pad + 1);
    return {static_cast<int64_t>((words[0] * places) >> 32) - pad,
            static_cast<int64_t>((words[1] * places) >> 32) - pad, flip && (words[2] >> 31) != 0};
  }
  // Index of the stored pixel shown at (row, column) of the augmented image; -1 for padding.
  BITGRAD_HD int64_t source(const Draw& d, int64_t row, int64_t column) const {
    const int64_t y = row + d.down, x = (d.mirrored ? columns - 1 - column : column) + d.right;
    return y >= 0 && y < rows && x >= 0 && x < columns ? y * columns + x : -1;
  }
};

// The augmentation of a data set in an epoch. Throws Error unless samples are byte images of rank 2 or 3 and crop_pad
// is in range.
AugmentedImages augmented_images(const Dataset& dataset, const Augment& augment, uint64_t seed, int64_t epoch);
// Writes augmented image `index` to x, with bytes converted by the table of `stored`; padding is byte 0.
void write_augmented(const AugmentedImages& images, const StoredSamples& stored, int64_t index, float* x);

}  // namespace bitgrad::data
