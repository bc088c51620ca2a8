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
// In the order of commands.inc. Filled by main before the command line is read.
std::vector<CommandInfo>& program_commands();
// Throws Error with the nearest name for a command that does not exist.
const CommandInfo& find_command(const std::string& name);

// What `help COMMAND` says beyond its options: examples, one a line, each with a comment; empty: none.
std::string examples_of(const std::string& command);
// The exit codes that every command uses.
std::string exit_codes();
// Examples and exit codes, as they stand below the options.
std::string help_footer(const std::string& command);

}  // namespace bitgrad::cli
