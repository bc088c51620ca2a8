// bitgrad help [COMMAND]: options, examples and exit codes of a command; without COMMAND, the list of commands.
#include <iostream>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "command.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

void list_commands() {
  std::vector<std::vector<std::string>> table{{"command", "what it does"}};
  for (const CommandInfo& command : program_commands()) table.push_back({command.name, command.summary});
  print_texts(std::cout, table);
  std::cout << wrap_lines(
      concat("\nbitgrad help COMMAND shows the options of one, with examples.\nExit codes: ", exit_codes(), ".\n"));
}

}  // namespace

Run setup_help(Arguments& args) {
  auto command = std::make_shared<std::string>();
  args.option("command", *command, "command to explain; default: list all commands");
  return [command] {
    if (command->empty())
      list_commands();
    else
      std::cout << find_command(*command).arguments->help();
    return 0;
  };
}

}  // namespace bitgrad::cli
