// Random crops and mirror images of stored bytes: what an element of a changed image is made from. Shared by the loader
// and by the map that gathers on a device (docs/numerics.md section 7).
#pragma once

#include "bitgrad/base/host_device.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/loader.h"

namespace bitgrad::data {

// Images [rows, columns, channels] as they are stored.
struct AugmentedImages {
  RandomStream draws;  // of (seed, epoch)
  int64_t rows, columns, channels, pad;
  bool flip;

  struct Draw {
    int64_t down, right;  // the image moves by minus these, -pad .. pad
    bool mirrored;
  };
  // Of sample `index`: block `index` of the stream, words w0 (rows), w1 (columns), w2 (mirror).
  BITGRAD_HD Draw draw(int64_t index) const {
    const PhiloxBlock words = draws.block(static_cast<uint64_t>(index));
    const auto places = static_cast<uint64_t>(2 * pad + 1);
    return {static_cast<int64_t>((words[0] * places) >> 32) - pad,
            static_cast<int64_t>((words[1] * places) >> 32) - pad, flip && (words[2] >> 31) != 0};
  }
  // The pixel of the stored image that pixel (row, column) of the changed one shows; -1: none, a pad.
  BITGRAD_HD int64_t source(const Draw& d, int64_t row, int64_t column) const {
    const int64_t y = row + d.down, x = (d.mirrored ? columns - 1 - column : column) + d.right;
    return y >= 0 && y < rows && x >= 0 && x < columns ? y * columns + x : -1;
  }
};

// The images of a data set in an epoch. Throws Error for data that are not images of bytes, of rank 2 or 3, or for a
// crop_pad out of range.
AugmentedImages augmented_images(const Dataset& dataset, const Augment& augment, uint64_t seed, int64_t epoch);
// Writes image `index`, changed, to x: what the table of `stored` gives each byte; a pad is byte 0.
void write_augmented(const AugmentedImages& images, const StoredSamples& stored, int64_t index, float* x);

}  // namespace bitgrad::data
