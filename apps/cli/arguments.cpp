#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>

#include "bitgrad/base/text.h"

namespace bitgrad::cli {

Argument Argument::required() {
  option_->required();
  return *this;
}

Argument Argument::delimiter(char separator) {
  option_->delimiter(separator);
  return *this;
}

Argument Argument::expected(int words) {
  option_->expected(words);
  return *this;
}

Argument Argument::repeatable() {
  option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  return *this;
}

Argument Argument::whole_range(int64_t low, int64_t high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Argument Argument::float_range(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Argument Argument::one_of(const std::vector<std::string>& names) {
  option_->check(CLI::IsMember(names));
  return suggest([names] { return names; });
}

Argument Argument::suggest(std::function<std::vector<std::string>()> words) {
  *words_ = std::move(words);
  return *this;
}

Argument Argument::excludes(const Argument& other) {
  option_->excludes(other.option_);
  return *this;
}

Argument Argument::needs(const Argument& other) {
  option_->needs(other.option_);
  return *this;
}

int64_t Argument::count() const { return static_cast<int64_t>(option_->count()); }

struct Arguments::State {
  std::unique_ptr<CLI::App> owned;  // set for a program; null for one of its commands
  CLI::App* app;
  std::vector<std::unique_ptr<Arguments>> commands;
  std::map<const CLI::Option*, std::function<std::vector<std::string>()>> words;
  std::string chosen;
};

Arguments::Arguments(const std::string& description, const std::string& program) : state_(std::make_unique<State>()) {
  state_->owned = std::make_unique<CLI::App>(description, program);
  state_->app = state_->owned.get();
}

Arguments::Arguments(CLI::App& command) : state_(std::make_unique<State>()) { state_->app = &command; }

Arguments::~Arguments() = default;

Argument Arguments::argument(CLI::Option* option) { return Argument(option, state_->words[option]); }

#define BITGRAD_OPTION(type)                                                                   \
  Argument Arguments::option(const std::string& names, type& value, const std::string& text) { \
    return argument(state_->app->add_option(names, value, text));                              \
  }
BITGRAD_OPTION(std::string)
BITGRAD_OPTION(int)
BITGRAD_OPTION(int64_t)
BITGRAD_OPTION(double)
BITGRAD_OPTION(std::vector<std::string>)
BITGRAD_OPTION(std::vector<int64_t>)
#undef BITGRAD_OPTION

Argument Arguments::flag(const std::string& names, bool& value, const std::string& text) {
  return argument(state_->app->add_flag(names, value, text));
}

Argument Arguments::choice_by_index(const std::string& names, const std::vector<std::string>& words,
                                    std::function<void(size_t)> set, const std::string& text) {
  const auto find = [words, set = std::move(set)](const std::string& word) {
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i] == word) set(i);
  };
  CLI::Option* option = state_->app->add_option_function<std::string>(names, find, text);
  return argument(option->transform(CLI::IsMember(words, CLI::ignore_case))).suggest([words] { return words; });
}

Arguments& Arguments::command(const std::string& name, const std::string& summary) {
  state_->app->require_subcommand(1);
  CLI::App* sub = state_->app->add_subcommand(name, summary);
  state_->commands.push_back(std::unique_ptr<Arguments>(new Arguments(*sub)));
  return *state_->commands.back();
}

void Arguments::set_footer(const std::string& text) { state_->app->footer(text); }
std::string Arguments::help() const { return wrap_lines(state_->app->help("bitgrad")); }

std::vector<ArgumentText> Arguments::texts() const {
  std::vector<ArgumentText> all;
  for (const CLI::Option* option : state_->app->get_options()) {
    if (option == state_->app->get_help_ptr()) continue;
    ArgumentText& text = all.emplace_back();
    text.positional = option->get_positional();
    text.takes_value = option->get_items_expected_max() > 0;
    text.text = option->get_description();
    if (const auto words = state_->words.find(option); words != state_->words.end() && words->second)
      text.words = words->second();
    if (text.positional) text.names.push_back(option->get_name());
    for (const std::string& name : option->get_snames()) text.names.push_back('-' + name);
    for (const std::string& name : option->get_lnames()) text.names.push_back("--" + name);
  }
  return all;
}

// "--ouut: no such option. Did you mean '--out'?"; empty if no word looks like an option.
std::string Arguments::unknown_option() const {
  const Arguments* command = this;
  for (const auto& own : state_->commands)
    if (own->state_->app->parsed()) command = own.get();
  std::vector<std::string> names{"--help"};
  for (const ArgumentText& argument : command->texts())
    if (!argument.positional) names.insert(names.end(), argument.names.begin(), argument.names.end());
  for (const std::string& word : state_->app->remaining(true)) {
    if (!word.starts_with('-')) continue;
    const std::string near = nearest_name(word.substr(0, word.find('=')), names);
    return word + ": no such option" + (near.empty() ? "" : ". Did you mean '" + near + "'?");
  }
  return {};
}

void Arguments::parse(int argc, const char* const* argv) {
  try {
    state_->app->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) {
      const std::string unknown = unknown_option();  // also where something else is missing: it may be the same word
      throw UsageError(unknown.empty() ? e.what() : unknown);
    }
    const auto asked = std::find_if(state_->commands.begin(), state_->commands.end(),
                                    [](const auto& own) { return own->state_->app->parsed(); });
    std::cout << (asked == state_->commands.end() ? *this : **asked).help();
    throw HelpShown();
  }
  for (const CLI::App* sub : state_->app->get_subcommands()) state_->chosen = sub->get_name();
}

const std::string& Arguments::chosen_command() const { return state_->chosen; }

int64_t Arguments::count(const std::string& name) const { return static_cast<int64_t>(state_->app->count(name)); }

}  // namespace bitgrad::cli
