// Warnings on values that are read, and are likely not what was meant.
#pragma once

#include <cstdint>
#include <string>

#include "data/npy_array.h"

namespace bitgrad::data {

// On classes 1 .. `classes` - 1, of which no sample has 0.
std::string no_class_0_text(int64_t classes);
// What follows "expected 0 .. N" on a label `largest` that is beyond the number of classes: what to write.
std::string more_classes_text(int64_t largest);
// Whole numbers 0 .. 255 of pictures, which only uint8 says to be pixels.
void warn_of_pixels(const NpyArray& images);
// Different whole numbers of a feature that are one number in fp32, such as ids above 2^24.
void warn_of_merged(const NpyArray& samples);

}  // namespace bitgrad::data
