// Measurements of the benchmark programs: contestants alternate, and results are medians.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

}  // namespace bitgrad::bench
