// Runs with each cap of instructions and for several numbers of threads.
#pragma once

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "support/catch.h"

namespace bitgrad::test {

// same(): whether what is computed now has the bits that it must have.
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
