// What identifies the samples of a data set, so that a resumed run can tell whether they are still the same.
#pragma once

#include <cstdint>
#include <string>

#include "bitgrad/data/dataset.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

struct SamplesRecord {
  int64_t samples = 0;
  Shape shape = {};     // of one sample
  uint32_t crc32c = 0;  // of mixed CRCs of each sample's values or ids and its target, as Dataset::example writes them
  friend bool operator==(const SamplesRecord&, const SamplesRecord&) = default;
};

// Reads samples that are in memory in full. Of others, which may be slow to read, it takes all up to 256 MiB, else as
// many of them, evenly spread, the first and the last included. Does not depend on how the samples are stored.
SamplesRecord samples_record(const Dataset& data);
// "95 samples [4], CRC32C 0x1a2b3c4d".
std::string to_string(const SamplesRecord& record);

}  // namespace bitgrad
