// Work of the current device that is launched again and again: runs of launches that are waited for at their end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shared/measure.h"

namespace bitgrad::bench {

constexpr int64_t kCacheBytes = int64_t{64} << 20;  // more than the L2 of any target
// Sets of operands of `bytes` each that together do not fit in a cache: 1 .. 16.
int64_t operand_sets(double bytes);

struct Launches {
  std::string name;
  std::function<void(int64_t)> launch;  // takes the i-th operands
  int64_t count = 1;                    // of one measurement
  std::vector<double> ns{};             // of one launch

  double median() const { return bench::median(ns); }
};

// Fills `ns` of each, `repeat` times in turns, after a run that loads what is loaded late. A measurement lasts some
// milliseconds: wall time on a device, processor time of the thread on the CPU.
void measure(std::vector<Launches>& all, int64_t repeat);

// Copies `bytes` from one place of the current device to another.
Launches copy_launches(int64_t bytes);
// Bytes read and written by it.
inline double copied_bytes(int64_t bytes) { return 2.0 * static_cast<double>(bytes); }

}  // namespace bitgrad::bench
