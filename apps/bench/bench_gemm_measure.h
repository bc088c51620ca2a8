// Measurements of bench_gemm: processor time of one thread, all contestants in turns, medians.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bitgrad::bench {

struct Contestant {
  std::string name;
  std::function<void()> run;
  int64_t calls = 1;  // of one measurement
  bool slow = false;  // measured once
  std::vector<double> ns;

  double median() const;
};

// Fills `ns` of each.
void measure(std::vector<Contestant>& all, int64_t repeat);

}  // namespace bitgrad::bench
