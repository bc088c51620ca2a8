// What a test needs of the CPU. Catch2 2 has no SKIP: a test that cannot run here says so in one line that begins with
// "skipped:", and returns.
#pragma once

#include "bitgrad/base/cpu.h"
#include "support/catch.h"

namespace bitgrad::test {

// True, with the line, where the CPU or the cap does not grant these groups of instructions.
inline bool skipped_without(IsaMask needs) {
  const IsaMask missing = needs & ~cpu_isa();
  if (missing != 0) WARN("skipped: needs " << isa_names(missing));
  return missing != 0;
}

}  // namespace bitgrad::test
