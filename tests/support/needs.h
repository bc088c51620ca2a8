// CPU features that a test needs. Catch2 version 2 has no SKIP: a test that cannot run here prints one line that starts
// with "skipped:" and returns.
#pragma once

#include "bitgrad/base/cpu.h"
#include "support/catch.h"

namespace bitgrad::test {

// Returns true and prints that line if the CPU or the cap does not provide these instruction groups.
inline bool skipped_without(IsaMask needs) {
  const IsaMask missing = needs & ~cpu_isa();
  if (missing != 0) WARN("skipped: needs " << isa_names(missing));
  return missing != 0;
}

}  // namespace bitgrad::test
