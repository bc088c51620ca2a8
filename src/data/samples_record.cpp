#include "bitgrad/data/dataset.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"

namespace bitgrad {
namespace {

constexpr int64_t kMostRead = int64_t{1} << 28;    // of samples that are not in memory
constexpr int64_t kReadAtOnce = int64_t{1} << 18;  // bytes that one thread takes at a time

// How far apart the samples are that are read. Windows that overlap in memory are read side by side.
int64_t step_of(const Dataset& data, int64_t sample_bytes) {
  const StoredSamples stored = data.stored();
  if (stored.codes == nullptr)
    return std::max<int64_t>(1,
                             (data.size() + kMostRead / sample_bytes) / std::max<int64_t>(1, kMostRead / sample_bytes));
  return stored.stride > 0 ? std::max<int64_t>(1, data.features() / stored.stride) : 1;
}

// The finalizer of MurmurHash3. A CRC is linear: without this, the sums of overlapping windows that share a changed id
// could cancel.
uint32_t mixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

}  // namespace

SamplesRecord samples_record(const Dataset& data) {
  const int64_t features = data.features(), targets = std::max<int64_t>(1, data.target_form().shape.numel());
  const int64_t bytes = 4 * (features + targets), step = step_of(data, bytes), last = data.size() - 1;
  const int64_t count = last / step + 1 + (last % step == 0 ? 0 : 1);
  std::vector<uint32_t> sums(static_cast<size_t>(count));
  const DeviceGuard cpu(Device::cpu());
  parallel_ranges(count, std::max<int64_t>(1, kReadAtOnce / bytes), [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> example(static_cast<size_t>(features + targets));  // fp32 or int32
    for (int64_t i = begin; i < end; ++i) {
      data.example(std::min(i * step, last), example.data(), example.data() + features);
      sums[static_cast<size_t>(i)] = mixed(crc32c(example.data(), static_cast<size_t>(bytes)));
    }
  });
  return {data.size(), Shape(data.sample_shape()), crc32c(sums.data(), sums.size() * sizeof(uint32_t))};
}

std::string to_string(const SamplesRecord& record) {
  char sum[16];
  std::snprintf(sum, sizeof sum, "0x%08x", record.crc32c);
  return concat(record.samples, record.samples == 1 ? " sample " : " samples ", record.shape, ", CRC32C ", sum);
}

}  // namespace bitgrad
