// A command adds its options to the command line and returns the function that runs it. That function returns the exit
// code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/arguments.h"

namespace bitgrad::cli {

using Run = std::function<int()>;
#define BITGRAD_COMMAND(name, summary) Run setup_##name(Arguments& args);
#include "commands.inc"
#undef BITGRAD_COMMAND

// The commands of the program as data, for help, completions and the manual page.

struct CommandInfo {
  std::string name, summary;
  Arguments* arguments;
};
// In the order of commands.inc. main fills it before parsing the command line.
std::vector<CommandInfo>& program_commands();
// Throws Error with the nearest name if the command does not exist.
const CommandInfo& find_command(const std::string& name);

// The examples shown by `help COMMAND`, one commented example per line; empty: none.
std::string examples_of(const std::string& command);
// The exit codes that every command uses.
std::string exit_codes();
// Examples and exit codes, as shown below the options.
std::string help_footer(const std::string& command);

}  // namespace bitgrad::cli
