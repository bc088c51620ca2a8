// Runs a check under every instruction cap and with several numbers of threads.
#pragma once

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "support/catch.h"

namespace bitgrad::test {

// same(): computes the result and returns whether it has the expected bits.
template <typename Same>
void check_everywhere(Same same) {
  const int threads = num_threads();
  const IsaLevel cap = isa_cap();
  for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    set_isa_cap(level);
    CHECK(same());
  }
  set_isa_cap(cap);
  for (const int n : {1, 2, 4}) {
    set_num_threads(n);
    CHECK(same());
  }
  set_num_threads(threads);
}

}  // namespace bitgrad::test
