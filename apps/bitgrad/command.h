// A command adds its options to the parser and gives the function that runs it. run() returns the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace bitgrad::cli {

using Run = std::function<int()>;
#define BITGRAD_COMMAND(name, summary) Run setup_##name(CLI::App& app);
#include "commands.inc"
#undef BITGRAD_COMMAND

}  // namespace bitgrad::cli
