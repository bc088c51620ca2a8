#include "shared/launches.h"

#include <algorithm>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::bench {
namespace {

constexpr int64_t kMostSets = 16, kMostLaunches = 2000;
constexpr double kLeastNs = 3e6;  // minimum duration of one measurement

double run(const Launches& l, int64_t count) {
  const TimeBase base = current_device().is_cpu() ? TimeBase::kThread : TimeBase::kWall;
  DeviceBackend& device = device_backend(current_device());
  device.synchronize();
  const double begin = now_ns(base);
  for (int64_t i = 0; i < count; ++i) l.launch(i);
  device.synchronize();
  return (now_ns(base) - begin) / static_cast<double>(count);
}

}  // namespace

int64_t operand_sets(double bytes) {
  return std::clamp(static_cast<int64_t>(static_cast<double>(kCacheBytes) / std::max(bytes, 1.0)) + 1, int64_t{1},
                    kMostSets);
}

void measure(std::vector<Launches>& all, int64_t repeat) {
  for (Launches& l : all) {
    run(l, 1);
    l.count = std::clamp<int64_t>(static_cast<int64_t>(kLeastNs / std::max(run(l, 2), 1.0)), 1, kMostLaunches);
  }
  for (int64_t r = 0; r < repeat; ++r)
    for (Launches& l : all) l.ns.push_back(run(l, l.count));
}

Launches copy_launches(int64_t bytes) {
  const Tensor from = Tensor::zeros({bytes}, dtypes::uint8), to = Tensor::zeros({bytes}, dtypes::uint8);
  return {"copy", [from, to](int64_t) { to.copy_from(from); }};
}

}  // namespace bitgrad::bench
