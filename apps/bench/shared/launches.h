// Repeated launches on the current device, timed as series that are synchronized at their end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/measure.h"

namespace bitgrad::bench {

constexpr int64_t kCacheBytes = int64_t{64} << 20;  // more than the L2 of any target
// How many sets of operands of `bytes` each are needed to exceed the cache: 1 .. 16.
int64_t operand_sets(double bytes);

struct Launches {
  std::string name;
  std::function<void(int64_t)> launch;  // with the i-th set of operands
  int64_t count = 1;                    // launches per measurement
  std::vector<double> ns{};             // per launch

  double median() const { return bench::median(ns); }
};

// Fills `ns` of all entries with `repeat` measurements each, alternating, after a first run that triggers lazy loading.
// A measurement lasts some milliseconds: wall time on a device, CPU time of the thread on the CPU.
void measure(std::vector<Launches>& all, int64_t repeat);

// Copies `bytes` between two buffers of the current device.
Launches copy_launches(int64_t bytes);
// Bytes that such a copy reads and writes.
inline double copied_bytes(int64_t bytes) { return 2.0 * static_cast<double>(bytes); }

}  // namespace bitgrad::bench
