// Measurements of the benchmark programs: contestants alternate, and results are medians.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bitgrad/base/memory.h"
#include "shared/report.h"

namespace bitgrad::bench {

// On a busy machine wall time would penalize longer measurements for time slices given to other processes, so a single
// thread is measured by its CPU time. Several threads need wall time.
enum class TimeBase { kThread, kWall };
inline TimeBase time_base(int threads) { return threads == 1 ? TimeBase::kThread : TimeBase::kWall; }
double now_ns(TimeBase base);

double median(std::vector<double> x);

struct Contestant {
  std::string name;
  std::function<void()> run;
  int64_t calls = 1;  // per measurement
  bool slow = false;  // measured once, or three times if below 2 s
  std::vector<double> ns;
  std::function<void()> before = {};  // runs before each call, not timed

  double median() const { return bench::median(ns); }
};

// Fills `ns` of all contestants. `rare`: slow ones are measured fewer times.
void measure(std::vector<Contestant>& all, int64_t repeat, TimeBase base = TimeBase::kThread, bool rare = true);

// Memory for operands: aligned to 64 bytes and zeroed.

class Bytes {
 public:
  explicit Bytes(int64_t bytes) : data_(static_cast<size_t>(bytes / 64 + 1)) {}
  void* data() { return data_.data(); }
  float* floats() { return reinterpret_cast<float*>(data_.data()); }
  uint16_t* halves() { return reinterpret_cast<uint16_t*>(data_.data()); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> data_;
};

// Repeated launches on the current device, timed as series that are synchronized at their end.

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

// Runs a measurement in its own process.

// Returns the result of `run` in a forked child. Throws Error with `what` and the child's message if it threw or died.
Json run_in_child(const std::string& what, const std::function<Json()>& run);

// {kind: bytes ..., "total"}.
Json bytes_json(const MemoryAccount& account);

}  // namespace bitgrad::bench
