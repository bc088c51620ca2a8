#include "bench_gemm_measure.h"

#include <algorithm>
#include <ctime>

namespace bitgrad::bench {

namespace {

// Processor time of this thread: on a busy machine wall time would charge the longer measurements for the neighbours'
// turns.
double now_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double time_ns(const Contestant& c, int64_t calls) {
  const double start = now_ns();
  for (int64_t i = 0; i < calls; ++i) c.run();
  return (now_ns() - start) / static_cast<double>(calls);
}

}  // namespace

// All in turns, so that a change of the machine's pace meets all of them.
void measure(std::vector<Contestant>& all, int64_t repeat) {
  constexpr double kOnceNs = 4e8, kMeasurementNs = 2e6;
  for (Contestant& c : all) {
    const double first = time_ns(c, 1);
    c.slow = first > kOnceNs;
    if (c.slow) {
      c.ns.push_back(first);
      continue;
    }
    const double warm = time_ns(c, 1);
    c.calls = std::max<int64_t>(1, static_cast<int64_t>(kMeasurementNs / std::max(warm, 1.0)));
  }
  for (int64_t r = 0; r < repeat; ++r)
    for (Contestant& c : all)
      if (!c.slow) c.ns.push_back(time_ns(c, c.calls));
}

double Contestant::median() const {
  std::vector<double> sorted = ns;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace bitgrad::bench
