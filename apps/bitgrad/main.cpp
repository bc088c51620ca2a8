// bitgrad: the command line. Exit codes: docs/architecture.md.
#include <csignal>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/config/config.h"
#include "bitgrad/dist/engines.h"
#include "command.h"
#include "output.h"

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

// Writes a message and the end of its line at once: several ranks write to one standard error.
template <typename... Parts>
void say(const Parts&... parts) {
  std::cerr << bitgrad::concat(parts..., '\n');
}

int usage_error(const std::string& text) {
  say("error: ", bitgrad::printable_lines(text));
  return static_cast<int>(bitgrad::ErrorCode::kUsage);
}

// Gives a hint for a first word that is not a command. CLI11 would only say that a subcommand is required.
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

// A message, in which words of the command line that hold control characters are shown on one line.
std::string with_plain_words(std::string text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    for (const std::string& given : {word, bitgrad::printable_lines(word)}) {  // an Error has escaped all but lines
      const std::string shown = bitgrad::printable(word);
      if (shown == given) continue;
      for (size_t at = text.find(given); at != std::string::npos; at = text.find(given, at + shown.size()))
        text.replace(at, given.size(), shown);
    }
  return text;
}

int bug(const std::exception& e) {
  say("error: this is a bug in bitgrad, please report it: ", bitgrad::printable_lines(e.what()));
  return static_cast<int>(bitgrad::ErrorCode::kBug);
}

// A limit on memory or processes.
bool no_resources(const std::system_error& e) {
  return e.code() == std::errc::resource_unavailable_try_again || e.code() == std::errc::not_enough_memory;
}

int guarded(const std::vector<std::string>& words, const Run& run) {
  try {
    return bitgrad::cli::checked_output(run());
  } catch (const bitgrad::ConfigError& e) {
    say(with_plain_words(e.what(), words));  // formatted already: every line names file:line:col
    return static_cast<int>(e.code());
  } catch (const bitgrad::Error& e) {
    say("error: ", with_plain_words(e.what(), words));
    return static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    std::cerr << "error: out of memory\n";
    return static_cast<int>(bitgrad::ErrorCode::kMemory);
  } catch (const std::system_error& e) {
    if (!no_resources(e)) return bug(e);
    std::cerr << "error: the system has no more memory or threads: " << e.what() << '\n';  // takes no memory
    return static_cast<int>(bitgrad::ErrorCode::kMemory);
  } catch (const std::exception& e) {
    return bug(e);
  }
}

// Rewrites `bitgrad --version` as `bitgrad version`.
std::vector<const char*> spelled_out(int argc, char** argv) {
  std::vector<const char*> words(argv, argv + argc);
  if (argc == 2 && (std::string_view(argv[1]) == "--version" || std::string_view(argv[1]) == "-V"))
    words[1] = "version";
  return words;
}

// Other commands would do their work as often as there are processes, into the same files.
void require_one_process(const std::string& command) {
  if (command == "train" || command == "eval" || command == "version" || command == "help") return;
  const std::optional<bitgrad::Launch> launch = bitgrad::find_launch();
  bitgrad::require(
      !launch || launch->size <= 1, command, "runs as one process: a launcher has started ", launch ? launch->size : 1,
      " (", launch ? launch->source : "",
      "). Only train and eval share their work among them. Processes that have nothing to do with each other: set "
      "BITGRAD_RANKS=off");
}

int run_command(int argc, char** argv) {
  bitgrad::cli::Arguments args("bitgrad trains neural networks whose weights are the low-bit weights.", "bitgrad");
  std::map<std::string, Run> runs;
  for (const Command& c : kCommands) {
    bitgrad::cli::Arguments& own = args.command(c.name, c.summary);
    runs[c.name] = c.setup(own);
    own.set_footer(bitgrad::cli::help_footer(c.name));
    bitgrad::cli::program_commands().push_back({c.name, c.summary, &own});
  }
  args.set_footer("bitgrad help COMMAND shows examples. bitgrad new --list shows how to start.");
  std::string message;
  if (unknown_command(argc, argv, message)) return usage_error(message);
  try {
    const std::vector<const char*> words = spelled_out(argc, argv);
    args.parse(static_cast<int>(words.size()), words.data());
  } catch (const bitgrad::cli::HelpShown&) {
    return 0;
  } catch (const bitgrad::cli::UsageError& e) {
    // The first word is a command or an option.
    const std::string command = argc > 1 && argv[1][0] != '-' ? std::string(argv[1]) + ' ' : "";
    const std::string text = e.what();
    return usage_error(text + (text.ends_with('?') ? "" : ".") + " Try: bitgrad " + command + "--help");
  }
  // Shows warnings before a command opens its own log, each one once.
  bitgrad::set_log_sink(
      [said = std::make_shared<std::set<std::string>>()](bitgrad::LogLevel level, std::string_view line) {
        if (level >= bitgrad::LogLevel::kWarning && said->emplace(line).second) say("warning: ", line);
      });
  bitgrad::cpu_isa();  // reports a wrong BITGRAD_ISA now, not where a layer first queries it
  require_one_process(args.chosen_command());
  return runs.at(args.chosen_command())();
}

}  // namespace

int main(int argc, char** argv) {
  return guarded({argv, argv + argc}, [&] {
    bitgrad::cli::prepare_streams();
    std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit becomes a write error, like a full disk
    return run_command(argc, argv);
  });
}
