// Programs with the module of tests/faults/shim/ preloaded: what happens to them happens at a count of calls.
#pragma once

#include <random>
#include <sstream>
#include <string>

#include "support/catch.h"
#include "support/paths.h"
#include "support/subprocess.h"

namespace bitgrad::test {

// `settings`: the variables that the head of tests/faults/shim/failing_calls.cpp explains.
inline Process::Environment with_failing_calls(Process::Environment settings) {
  settings.emplace_back("LD_PRELOAD", build_path("bin/tests/libfailing_calls.so"));
  return settings;
}

// What a whole run did, as FAULT_COUNT writes it. What ran before main are constructors of libraries, that of CUDA's
// runtime among them, which does not survive a failing allocation.
struct CallCounts {
  long allocations = 0, files = 0, threads = 0, before_main = 0, bytes = 0, comparisons = 0;
  // One of the allocations since main began, which lie everywhere in a run: of a seed the same part of it everywhere.
  std::string any_moment(std::mt19937& random) const {
    const double part = static_cast<double>(random()) / 4294967296.0;
    return std::to_string(before_main + 1 + static_cast<long>(part * static_cast<double>(allocations - before_main)));
  }
};

inline CallCounts counts_in(const std::string& path) {
  std::istringstream in(slurp(path));
  CallCounts c;
  REQUIRE(in >> c.allocations >> c.files >> c.threads >> c.before_main >> c.bytes >> c.comparisons);
  REQUIRE((c.before_main > 0 && c.before_main < c.allocations / 2));
  return c;
}

}  // namespace bitgrad::test
