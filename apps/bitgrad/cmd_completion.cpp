// bitgrad completion bash|zsh|fish: completion of commands, options, configuration keys and files, generated from the
// commands. Keys and their values are queried at completion time (bitgrad explain --list, --values), so a script does
// not go stale.
#include <iostream>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "command.h"

namespace bitgrad::cli {
namespace {

std::string command_names() { return joined(program_commands(), " ", &CommandInfo::name); }

std::string option_names(const CommandInfo& command) {
  std::string names = "--help";
  for (const ArgumentText& argument : command.arguments->texts())
    if (!argument.positional)
      for (const std::string& name : argument.names) names += ' ' + name;
  return names;
}

// What may stand after an option, and at the place of a positional.
void print_bash_words(std::ostream& out) {
  out << "  case $command$previous in\n";
  for (const CommandInfo& command : program_commands())
    for (const ArgumentText& argument : command.arguments->texts()) {
      if (argument.words.empty() || argument.positional) continue;
      out << "    ";
      for (size_t i = 0; i < argument.names.size(); ++i)
        out << (i == 0 ? "" : "|") << command.name << argument.names[i];
      out << ") options=\"" << joined(argument.words, " ") << "\" only=1 ;;\n";
    }
  out << "  esac\n  case $command in\n";
  for (const CommandInfo& command : program_commands()) {
    std::string words;
    for (const ArgumentText& argument : command.arguments->texts())
      if (argument.positional && !argument.words.empty()) words += ' ' + joined(argument.words, " ");
    if (!words.empty()) out << "    " << command.name << ") [ \"$only\" ] || options=\"$options" << words << "\" ;;\n";
  }
  out << "  esac\n";
}

// zsh uses the bash script.
void print_bash(std::ostream& out, bool zsh) {
  if (zsh) out << "#compdef bitgrad\nautoload -U +X bashcompinit && bashcompinit\n";
  out << "_bitgrad() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} options= only= key=\n"
         "  local previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=( $(compgen -W \""
      << command_names()
      << " --help --version\" -- \"$word\") )\n"
         "    return\n"
         "  fi\n"
         "  case $command in\n";
  for (const CommandInfo& command : program_commands())
    out << "    " << command.name << ") options=\"" << option_names(command) << "\" ;;\n";
  out << "  esac\n";
  print_bash_words(out);
  // Bash takes = for a word of its own: "quant.recipe", "=", "w".
  out << "  case $word in =) key=$previous word= ;; esac\n"
         "  case $previous in =) key=${COMP_WORDS[COMP_CWORD-2]} ;; esac\n"
         "  if [ \"$key\" ]; then\n"
         "    options=$(bitgrad explain --values \"$key\" 2>/dev/null)\n"
         "    COMPREPLY=( $(compgen -W \"$options\" -- \"$word\") )\n"
         "    [ \"$options\" ] || COMPREPLY=( $(compgen -f -- \"$word\") )\n"
         "    return\n"
         "  fi\n"
         "  case $command in\n"
         "    help) options=\""
      << command_names()
      << "\" ;;\n"
         "    explain) options=\"$options $(bitgrad explain --list 2>/dev/null)\" ;;\n"
         "    train|check|sweep) case $word in -*|'') ;; *) [ \"$only\" ] || "
         "options=\"$options $(bitgrad explain --list 2>/dev/null | sed 's/$/=/')\" ;; esac ;;\n"
         "  esac\n"
         "  COMPREPLY=( $(compgen -W \"$options\" -- \"$word\") )\n"
         "  [ \"$only\" ] || COMPREPLY+=( $(compgen -f -- \"$word\") )\n"
         "  case ${COMPREPLY[0]} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
         "}\n"
         "complete -o filenames -o nosort -F _bitgrad bitgrad\n";
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("\\'") : std::string(1, c);
  return out + "'";
}

void print_fish(std::ostream& out) {
  out << "function __bitgrad_needs_command\n  test (count (commandline -opc)) -eq 1\nend\n";
  for (const CommandInfo& command : program_commands()) {
    out << "complete -c bitgrad -n __bitgrad_needs_command -f -a " << command.name << " -d " << quoted(command.summary)
        << '\n';
    for (const ArgumentText& argument : command.arguments->texts()) {
      if (argument.positional) {
        if (!argument.words.empty())
          out << "complete -c bitgrad -n '__fish_seen_subcommand_from " << command.name << "' -a "
              << quoted(joined(argument.words, " ")) << '\n';
        continue;
      }
      out << "complete -c bitgrad -n '__fish_seen_subcommand_from " << command.name << '\'';
      for (const std::string& name : argument.names)
        out << (name.starts_with("--") ? " -l " : " -s ") << name.substr(name.find_first_not_of('-'));
      if (!argument.words.empty()) out << " -f -a " << quoted(joined(argument.words, " "));
      out << (argument.takes_value ? " -r" : "") << " -d " << quoted(argument.text) << '\n';
    }
  }
  out << "complete -c bitgrad -n '__fish_seen_subcommand_from explain' -f -a '(bitgrad explain --list)'\n"
         "complete -c bitgrad -n '__fish_seen_subcommand_from help' -f -a '"
      << command_names() << "'\n";
}

}  // namespace

Run setup_completion(Arguments& args) {
  auto shell = std::make_shared<std::string>();
  args.option("shell", *shell, "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  return [shell] {
    if (*shell == "fish")
      print_fish(std::cout);
    else
      print_bash(std::cout, *shell == "zsh");
    return 0;
  };
}

}  // namespace bitgrad::cli
