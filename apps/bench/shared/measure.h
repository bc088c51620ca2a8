// Measurements of the benchmark programs: all contestants in turns, medians.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bitgrad::bench {

// On a busy machine wall time would charge the longer measurements for the neighbours' turns, so one thread is measured
// by its own processor time; several threads need wall time.
enum class TimeBase { kThread, kWall };
inline TimeBase time_base(int threads) { return threads == 1 ? TimeBase::kThread : TimeBase::kWall; }
double now_ns(TimeBase base);

double median(std::vector<double> x);

struct Contestant {
  std::string name;
  std::function<void()> run;
  int64_t calls = 1;  // of one measurement
  bool slow = false;  // measured once, or three times below 2 s
  std::vector<double> ns;
  std::function<void()> before = {};  // what each call needs, not measured

  double median() const { return bench::median(ns); }
};

// Fills `ns` of each. `rare`: slow ones are measured fewer times.
void measure(std::vector<Contestant>& all, int64_t repeat, TimeBase base = TimeBase::kThread, bool rare = true);

}  // namespace bitgrad::bench
