// Parts of a data set: the first samples; or a random part, drawn once per run, and the rest: data.valid of
// {fraction: f}.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

enum class SplitPart : uint8_t { kTrain, kValid };

// Indices of a part among n samples, ascending. Part kValid has round(fraction * n) samples, clamped to 1 .. n - 1:
// those with the smallest (r64(i), i), with r64 from block i of the stream {seed, Purpose::kShuffle,
// site_id("data.valid"), step 0} (docs/numerics.md section 7). Throws Error(kUsage) for fewer than two samples.
std::vector<int64_t> split_indices(int64_t n, double fraction, uint64_t seed, SplitPart part);

// The samples of a part as a data set. Samples that `all` has in memory (Dataset::stored) are copied; otherwise the
// part keeps `all` alive and reads from it.
std::unique_ptr<Dataset> split_samples(std::shared_ptr<const Dataset> all, double fraction, uint64_t seed,
                                       SplitPart part);

// The samples of `all` whose target is 0, of targets that mark anomalies: one value each. Throws Error(kData) if there
// are none.
std::unique_ptr<Dataset> normal_samples(std::shared_ptr<const Dataset> all);

// Samples 0 .. limit-1 of `all`. Throws Error(kUsage) if the limit is below 1 or above the size of `all`.
std::unique_ptr<Dataset> first_samples(std::unique_ptr<Dataset> all, int64_t limit);

}  // namespace bitgrad::data
