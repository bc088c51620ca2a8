// Warnings on values that are read, and are likely not what was meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/npy_array.h"

namespace bitgrad::data {

// On classes that no sample has, by whether a sample has each; empty if every class has one.
std::string absent_classes_text(const std::vector<bool>& seen);
// What follows "expected 0 .. N" on a label `largest` that is beyond the number of classes: what to write.
std::string more_classes_text(int64_t largest);
// Numbers that are not 0 and become 0 in fp32.
void warn_of_vanishing(const NpyArray& samples);
// Whole numbers 0 .. 255 of pictures, which only uint8 says to be pixels.
void warn_of_pixels(const NpyArray& images);
// Different whole numbers of a feature that are one number in fp32, such as ids above 2^24.
void warn_of_merged(const NpyArray& samples);

}  // namespace bitgrad::data
