// What this machine's arithmetic units can do, measured by loops that stay in registers. A row of bench_gemm is judged
// by its share of the fastest unit for its pair of dtypes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::bench {

struct UnitPeak {
  std::string name;
  double gmacs;  // 1e9 multiply-adds a second, one thread
};

// Cycles a nanosecond of this thread now: a chain of 64-bit products, three cycles each on Intel since Nehalem and AMD
// since Zen. 0 on other machines than x86-64.
double clock_ghz();

class Units {
 public:
  // Measures every unit that the granted instruction sets have, in turns, medians of `repeat`.
  explicit Units(int64_t repeat);
  // The fastest unit for products of these dtypes; nullptr when none was measured (cap `scalar`, other machines).
  const UnitPeak* fastest(DType a, DType b) const;

 private:
  struct Measured {
    UnitPeak peak;
    bool (*serves)(DType a, DType b);
  };
  std::vector<Measured> units_;
};

}  // namespace bitgrad::bench
