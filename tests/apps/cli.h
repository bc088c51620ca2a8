// The program `bitgrad`, as its users run it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/paths.h"
#include "support/subprocess.h"

namespace bitgrad::test {

inline const std::string kProgram = build_path("bin/bitgrad");

// The tester's own $BITGRAD_DATA, which wins over what a run remembers, does not reach it.
inline ProcessResult cli(std::vector<std::string> arguments, Process::Environment environment = {},
                         const Process::Streams& streams = {}) {
  arguments.insert(arguments.begin(), kProgram);
  environment.insert(environment.begin(), {"BITGRAD_DATA", ""});
  return run_program(arguments, environment, "", streams);
}

}  // namespace bitgrad::test
