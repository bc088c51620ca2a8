// The commands of the program as data, for help, completions and the manual page.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"

namespace bitgrad::cli {

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
