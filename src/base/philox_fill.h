// Many Philox blocks at once.
#pragma once

#include "bitgrad/base/rng.h"

namespace bitgrad::detail {

// Writes the words of blocks first .. first+count of the stream, eight 16-bit draws each, low halves first. Equal to
// stream.block() for every ISA.
void philox_fill(const RandomStream& stream, uint64_t first, int64_t count, uint16_t* out);

}  // namespace bitgrad::detail
