#include "command.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/config/config.h"

namespace bitgrad::cli {
namespace {

struct Examples {
  const char* command;
  const char* text;
};
constexpr Examples kExamples[] = {
#define BITGRAD_EXAMPLES(command, text) {#command, text},
#include "examples.inc"
#undef BITGRAD_EXAMPLES
};

std::string indented(const std::string& text) {
  std::string out = "  ";
  for (const char c : text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return out;
}

}  // namespace

std::vector<CommandInfo>& program_commands() {
  static std::vector<CommandInfo> commands;
  return commands;
}

const CommandInfo& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const CommandInfo& command : program_commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const std::vector<std::string> keys = config_key_paths();
  if (std::find(keys.begin(), keys.end(), name) != keys.end())
    fail("help", "'", name, "' is a configuration key, not a command. Try: bitgrad explain ", name);
  fail("bitgrad", unknown_name("command", name, names));
}

std::string examples_of(const std::string& command) {
  const auto found =
      std::find_if(std::begin(kExamples), std::end(kExamples), [&](const Examples& e) { return e.command == command; });
  return found == std::end(kExamples) ? "" : found->text;
}

std::string exit_codes() {
  return "0 success; 2 usage or configuration; 3 data or checkpoint; 4 memory or disk; 5 NaN or Inf; 6 no such device; "
         "70 a bug; 75 stopped by SIGTERM or SIGHUP and saved; 77 models check: all were skipped; "
         "130 stopped by Ctrl-C and saved; "
         "141 the reader of the output is gone";
}

std::string help_footer(const std::string& command) {
  const std::string examples = examples_of(command);
  return concat(examples.empty() ? "" : concat("Examples:\n", indented(examples), "\n\n"), "Exit codes: ", exit_codes(),
                ".\n");
}

}  // namespace bitgrad::cli
