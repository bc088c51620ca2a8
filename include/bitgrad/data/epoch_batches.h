// The batches of an epoch: how many, and how large.
#pragma once

#include <cstdint>
#include <string_view>

#include "bitgrad/base/key.h"

namespace bitgrad {

// What becomes of the samples of an epoch that do not fill a batch: kKeep: a smaller last batch; kDrop: they are left
// out of the epoch; kJoin: the batch before takes them too. An epoch of fewer samples than a batch is one batch in any
// case.
enum class LastBatch : uint8_t { kKeep, kDrop, kJoin };
template <>
struct EnumNames<LastBatch> {
  static constexpr std::string_view all[] = {"keep", "drop", "join"};
};
// The batches of an epoch of n samples.
struct EpochBatches {
  int64_t count = 0, samples = 0;  // samples: those that some batch contains
  int64_t largest = 0, least = 0;  // samples in the largest and in the smallest batch
};
// Requires samples and micro >= 1; micro may exceed samples.
EpochBatches epoch_batches(int64_t samples, int64_t micro, LastBatch last);

}  // namespace bitgrad
