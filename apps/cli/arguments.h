// The command line of a program: named options, flags and positionals, with checks that all programs share. CLI11 does
// the work. Only arguments.cpp includes its header, which costs seconds of compile time per file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace bitgrad::cli {

// A wrong command line; what() names the word and what is expected. Programs exit with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// --help was requested and has been printed to standard output. Programs exit with 0.
struct HelpShown {};

// One option, flag or positional of an Arguments object, which must outlive it.
class Argument {
 public:
  Argument(CLI::Option* option, std::function<std::vector<std::string>()>& words) : option_(option), words_(&words) {}
  Argument required();
  Argument delimiter(char separator);  // one word contains a list: "a,b"
  Argument expected(int words);        // exactly this many
  Argument repeatable();               // may be given several times with one word each; a vector collects them
  // Whole numbers or floats in [low, high].
  template <typename T>
  Argument range(T low, T high) {
    if constexpr (std::is_integral_v<T>)
      return whole_range(low, high);
    else
      return float_range(low, high);
  }
  Argument one_of(const std::vector<std::string>& names);
  // Words that a completion offers; others are accepted. Called only when a completion script is printed.
  Argument suggest(std::function<std::vector<std::string>()> words);
  Argument excludes(const Argument& other);
  Argument needs(const Argument& other);
  int64_t count() const;  // number of times it was given; valid after parse()

 private:
  Argument whole_range(int64_t low, int64_t high);
  Argument float_range(double low, double high);

  CLI::Option* option_;
  std::function<std::vector<std::string>()>* words_;
};

// An option or positional of a command, as completions and manual pages list it.
struct ArgumentText {
  std::vector<std::string> names;  // "--out", "-o"; for a positional, its name
  bool positional = false, takes_value = false;
  std::string text;
  std::vector<std::string> words;  // known values
};

class Arguments {
 public:
  explicit Arguments(const std::string& description, const std::string& program = "");
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // `names`: "--out", "-o,--out", or a bare word for a positional. `value` holds the default and must outlive parse().
  Argument option(const std::string& names, std::string& value, const std::string& text = "");
  Argument option(const std::string& names, int& value, const std::string& text = "");
  Argument option(const std::string& names, int64_t& value, const std::string& text = "");
  Argument option(const std::string& names, double& value, const std::string& text = "");
  Argument option(const std::string& names, std::vector<std::string>& value, const std::string& text = "");
  Argument option(const std::string& names, std::vector<int64_t>& value, const std::string& text = "");
  Argument flag(const std::string& names, bool& value, const std::string& text = "");

  // An enumerator by name, case-insensitive.
  template <typename T>
  Argument choice(const std::string& names, T& value, std::initializer_list<std::pair<const char*, T>> choices,
                  const std::string& text = "") {
    std::vector<std::string> words;
    std::vector<T> values;
    for (const auto& [word, v] : choices) {
      words.emplace_back(word);
      values.push_back(v);
    }
    return choice_by_index(
        names, words, [&value, values](size_t i) { value = values[i]; }, text);
  }

  // Adds a command, such as "train" in `bitgrad train`. If there are commands, exactly one must be given.
  Arguments& command(const std::string& name, const std::string& summary);

  // Sets the text that --help shows below the options.
  void set_footer(const std::string& text);
  std::string help() const;  // what --help prints, at most 80 characters a line
  // All options and positionals except --help.
  std::vector<ArgumentText> texts() const;

  // Throws UsageError or HelpShown.
  void parse(int argc, const char* const* argv);
  const std::string& chosen_command() const;     // after parse(); empty without commands
  int64_t count(const std::string& name) const;  // number of times an option was given; valid after parse()

 private:
  struct State;
  explicit Arguments(CLI::App& command);
  Argument argument(CLI::Option* option);
  std::string unknown_option() const;
  Argument choice_by_index(const std::string& names, const std::vector<std::string>& words,
                           std::function<void(size_t)> set, const std::string& text);

  std::unique_ptr<State> state_;
};

}  // namespace bitgrad::cli
