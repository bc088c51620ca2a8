// Bulk generation of Philox blocks.
#pragma once

#include "bitgrad/base/rng.h"

namespace bitgrad::detail {

// Writes the words of blocks first .. first + count - 1 of the stream: eight 16-bit values per block, low half of each
// word first. Equal to stream.block() on every ISA.
void philox_fill(const RandomStream& stream, uint64_t first, int64_t count, uint16_t* out);

}  // namespace bitgrad::detail
