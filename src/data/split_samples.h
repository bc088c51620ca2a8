// A part of a data set's samples, drawn once for a run, and the rest: data.valid of {fraction: f}.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

enum class SplitPart : uint8_t { kTrain, kValid };

// The indices of a part among n samples, ascending. Part kValid has round(fraction * n) of them, at least 1 and at most
// n - 1: those of the smallest (r64(i), i), r64 from block i of the stream {seed, Purpose::kShuffle,
// site_id("data.valid"), step 0} (docs/numerics.md section 7). Error(kUsage) for fewer than two samples.
std::vector<int64_t> split_indices(int64_t n, double fraction, uint64_t seed, SplitPart part);

// The samples of a part as a data set. What `all` has in memory (Dataset::stored) is copied; else the part keeps `all`.
std::unique_ptr<Dataset> split_samples(std::shared_ptr<const Dataset> all, double fraction, uint64_t seed,
                                       SplitPart part);

}  // namespace bitgrad::data
