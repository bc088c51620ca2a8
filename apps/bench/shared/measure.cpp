#include "shared/measure.h"

#include <algorithm>
#include <ctime>

namespace bitgrad::bench {

namespace {

double time_ns(const Contestant& c, int64_t calls, TimeBase base) {
  if (c.before) {
    double ns = 0;
    for (int64_t i = 0; i < calls; ++i) {
      c.before();
      const double start = now_ns(base);
      c.run();
      ns += now_ns(base) - start;
    }
    return ns / static_cast<double>(calls);
  }
  const double start = now_ns(base);
  for (int64_t i = 0; i < calls; ++i) c.run();
  return (now_ns(base) - start) / static_cast<double>(calls);
}

}  // namespace

double now_ns(TimeBase base) {
  timespec t{};
  clock_gettime(base == TimeBase::kThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const size_t half = x.size() / 2;
  return x.size() % 2 == 1 ? x[half] : (x[half - 1] + x[half]) / 2;
}

// Contestants alternate, so that a change of the machine's speed affects all of them.
void measure(std::vector<Contestant>& all, int64_t repeat, TimeBase base, bool rare) {
  constexpr double kOnceNs = 2e9, kThriceNs = 4e8, kMeasurementNs = 2e6;
  for (Contestant& c : all) {
    const double first = time_ns(c, 1, base);
    c.slow = rare && first > kThriceNs;
    if (c.slow) {
      c.ns.push_back(first);
      for (int i = 1; i < 3 && first < kOnceNs; ++i) c.ns.push_back(time_ns(c, 1, base));
      continue;
    }
    const double warm = time_ns(c, 1, base);
    c.calls = std::max<int64_t>(1, static_cast<int64_t>(kMeasurementNs / std::max(warm, 1.0)));
  }
  for (int64_t r = 0; r < repeat; ++r)
    for (Contestant& c : all)
      if (!c.slow) c.ns.push_back(time_ns(c, c.calls, base));
}

}  // namespace bitgrad::bench
