// Runs a check under every instruction cap and with several numbers of threads. A device has neither: once there.
#pragma once

#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "support/catch.h"
#include "support/device_run.h"

namespace bitgrad::test {

inline std::vector<IsaLevel> isa_levels(const std::vector<IsaLevel>& levels = {IsaLevel::kScalar, IsaLevel::kAvx2,
                                                                               IsaLevel::kAvx512}) {
  return runs_on_device() ? std::vector<IsaLevel>{isa_cap()} : levels;
}
inline std::vector<int> thread_counts(const std::vector<int>& counts) {
  return runs_on_device() ? std::vector<int>{num_threads()} : counts;
}

// Puts the cap and the number of threads back.
struct RestoreCpu {
  IsaLevel level = isa_cap();
  int threads = num_threads();
  ~RestoreCpu() {
    set_isa_cap(level);
    set_num_threads(threads);
  }
};

// Runs `body` under every cap with 1 and 4 threads.
template <typename Body>
void everywhere(Body&& body) {
  const RestoreCpu restore;
  for (const IsaLevel level : isa_levels())
    for (const int threads : thread_counts({1, 4})) {
      set_isa_cap(level);
      set_num_threads(threads);
      INFO("isa " << static_cast<int>(level) << " threads " << threads);
      body();
    }
}

// same(): computes the result and returns whether it has the expected bits.
template <typename Same>
void check_everywhere(Same same) {
  const RestoreCpu restore;
  for (const IsaLevel level : isa_levels()) {
    set_isa_cap(level);
    CHECK(same());
  }
  set_isa_cap(restore.level);
  for (const int n : thread_counts({1, 2, 4})) {
    set_num_threads(n);
    CHECK(same());
  }
}

}  // namespace bitgrad::test
