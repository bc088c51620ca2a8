// Peak rates of this machine's arithmetic units, measured by loops that stay in registers. bench_gemm reports each
// kernel's share of the fastest unit for its pair of dtypes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::bench {

struct UnitPeak {
  std::string name;
  double gmacs;  // 1e9 multiply-adds per second on one thread
};

// This thread's current clock in cycles per nanosecond (GHz), measured with a chain of 64-bit multiplications of three
// cycles each (Intel since Nehalem, AMD since Zen). 0 on machines other than x86-64.
double clock_ghz();

class Units {
 public:
  // Measures every unit of the granted instruction sets alternately; medians of `repeat` runs.
  explicit Units(int64_t repeat);
  // The fastest unit for products of these dtypes; nullptr if none was measured (cap `scalar`, other architectures).
  const UnitPeak* fastest(DType a, DType b) const;

 private:
  struct Measured {
    UnitPeak peak;
    bool (*serves)(DType a, DType b);
  };
  std::vector<Measured> units_;
};

}  // namespace bitgrad::bench
