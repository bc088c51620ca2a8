// Scripts of tests/scripts in $BITGRAD_PYTHON (else python3), which has the packages that they need.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "support/catch.h"
#include "support/paths.h"

namespace bitgrad::test {

constexpr int kAbsent = 77;  // exit status of a script without one of its packages

inline std::string python() {
  const char* const named = std::getenv("BITGRAD_PYTHON");
  return named != nullptr ? named : "python3";
}

// Its standard output; empty where the program or a package is absent, which is said with what it `needs`.
inline std::string script_output(const std::string& script, std::vector<std::string> arguments,
                                 const std::string& needs) {
  arguments.insert(arguments.begin(), {python(), source_path("tests/scripts/") + script});
  const ProcessResult run = run_program(arguments);
  if (run.code == kAbsent || run.code == 127) {
    WARN("skipped: no " + needs + " in " + python() + ". Set BITGRAD_PYTHON");
    return {};
  }
  INFO(run.err);
  REQUIRE(run.code == 0);
  return run.out;
}

}  // namespace bitgrad::test
