// The program `bitgrad`, as its users run it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/subprocess.h"

namespace bitgrad::test {

inline const std::string kProgram = BITGRAD_BINARY_DIR "/bin/bitgrad";

inline ProcessResult cli(std::vector<std::string> arguments, const Process::Environment& environment = {},
                         const Process::Streams& streams = {}) {
  arguments.insert(arguments.begin(), kProgram);
  return run_program(arguments, environment, "", streams);
}

}  // namespace bitgrad::test
