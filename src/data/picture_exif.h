// The orientation of pictures that EXIF records, as cameras write it, and what is done about it.
#pragma once

#include <cstdint>
#include <span>

#include "bitgrad/data/picture.h"

namespace bitgrad::data {

// The orientation (1 .. 8) in a TIFF structure: what follows "Exif\0\0" in the APP1 segment of a JPEG, and the content
// of eXIf in a PNG. 1 where there is none, or where the structure is damaged.
int exif_orientation(std::span<const uint8_t> tiff);
// The picture as it is meant to be seen: mirrored and turned.
Picture upright(Picture picture, int orientation);

}  // namespace bitgrad::data
