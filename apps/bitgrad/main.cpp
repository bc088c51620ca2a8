// bitgrad: the command line. Exit codes: docs/architecture.md.
#include <csignal>
#include <exception>
#include <iostream>
#include <map>
#include <new>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/train/config.h"
#include "command.h"

namespace {

using bitgrad::cli::Run;

struct Command {
  const char* name;
  const char* summary;
  Run (*setup)(bitgrad::cli::Arguments&);
};
constexpr Command kCommands[] = {
#define BITGRAD_COMMAND(name, summary) {#name, summary, bitgrad::cli::setup_##name},
#include "commands.inc"
#undef BITGRAD_COMMAND
};

int usage_error(const std::string& text) {
  std::cerr << "error: " << text << '\n';
  return static_cast<int>(bitgrad::ErrorCode::kUsage);
}

// A first word that is no command gets a hint; CLI11 would only say that a subcommand is required.
bool unknown_command(int argc, char** argv, std::string& message) {
  if (argc < 2 || argv[1][0] == '-') return false;
  std::vector<std::string> names;
  for (const Command& c : kCommands) {
    if (std::string(c.name) == argv[1]) return false;
    names.push_back(c.name);
  }
  message = bitgrad::unknown_name("command", argv[1], names);
  return true;
}

int guarded(const Run& run) {
  try {
    const int code = run();
    if (!std::cout.flush())
      bitgrad::fail_with(bitgrad::ErrorCode::kMemory, "output", "standard output takes no more (a full disk?)");
    return code;
  } catch (const bitgrad::ConfigError& e) {
    std::cerr << e.what() << '\n';  // a report of its own: every line names file:line:col
    return static_cast<int>(e.code());
  } catch (const bitgrad::Error& e) {
    std::cerr << "error: " << e.what() << '\n';
    return static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    std::cerr << "error: out of memory\n";
    return static_cast<int>(bitgrad::ErrorCode::kMemory);
  } catch (const std::exception& e) {
    std::cerr << "error: this is a bug in bitgrad, please report it: " << e.what() << '\n';
    return static_cast<int>(bitgrad::ErrorCode::kBug);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of the write, like a full disk
  bitgrad::cli::Arguments args("bitgrad trains neural networks whose weights are the low-bit weights.");
  std::map<std::string, Run> runs;
  for (const Command& c : kCommands) runs[c.name] = c.setup(args.command(c.name, c.summary));
  std::string message;
  if (unknown_command(argc, argv, message)) return usage_error(message);
  try {
    args.parse(argc, argv);
  } catch (const bitgrad::cli::HelpShown&) {
    return 0;
  } catch (const bitgrad::cli::UsageError& e) {
    return usage_error(std::string(e.what()) + ". Try: bitgrad --help");
  }
  // Warnings are seen also before a command opens its own log.
  bitgrad::set_log_sink([](bitgrad::LogLevel level, std::string_view line) {
    if (level >= bitgrad::LogLevel::kWarning) std::cerr << "warning: " << line << '\n';
  });
  return guarded(runs.at(args.chosen_command()));
}
