// A command adds its options to the command line and returns the function that runs it. That function returns the exit
// code.
#pragma once

#include <functional>

#include "cli/arguments.h"

namespace bitgrad::cli {

using Run = std::function<int()>;
#define BITGRAD_COMMAND(name, summary) Run setup_##name(Arguments& args);
#include "commands.inc"
#undef BITGRAD_COMMAND

}  // namespace bitgrad::cli
