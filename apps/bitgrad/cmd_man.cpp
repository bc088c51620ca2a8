// bitgrad man: the manual page bitgrad(1), generated from the commands. CMake installs it.
#include <iostream>
#include <sstream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/version.h"
#include "command.h"

namespace bitgrad::cli {
namespace {

// Escapes text for roff, so that no word is a request and no dash becomes a hyphen.
std::string roff(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_begins = c == '\n';
  }
  return out;
}

void print_command(std::ostream& out, const CommandInfo& command) {
  out << ".SS bitgrad " << roff(command.name) << '\n' << roff(command.summary) << ".\n";
  for (const ArgumentText& argument : command.arguments->texts())
    out << ".TP\n.B " << roff(joined(argument.names))
        << (argument.takes_value && !argument.positional ? " \\fIVALUE\\fR" : "") << '\n'
        << roff(argument.text) << '\n';
  const std::string examples = examples_of(command.name);
  if (!examples.empty()) out << ".PP\n.nf\n" << roff(examples) << "\n.fi\n";
}

void print_page(std::ostream& out) {
  out << ".TH BITGRAD 1 \"\" \"bitgrad " << BITGRAD_VERSION
      << "\"\n.SH NAME\nbitgrad \\- train low\\-bit neural networks\n"
      << ".SH SYNOPSIS\n.B bitgrad\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
      << roff(
             "bitgrad trains networks whose weights are the low-bit weights (INT1 to INT8, ternary, 1 bit) from a YAML "
             "configuration. The configuration keys are listed by bitgrad keys and explained by bitgrad explain KEY.")
      << "\n.SH COMMANDS\n";
  for (const CommandInfo& command : program_commands()) print_command(out, command);
  out << ".SH EXIT STATUS\n"
      << roff(exit_codes()) << ".\n.SH ENVIRONMENT\n"
      << ".TP\n.B BITGRAD_DATA\nFolder where relative paths of data start.\n"
      << ".TP\n.B BITGRAD_ISA\nHighest instruction set to use: scalar, avx2, avx512 or amx.\n"
      << ".TP\n.B CI\nIf set, progress is printed as plain lines, as in a pipe.\n";
}

}  // namespace

Run setup_man(Arguments&) {
  return [] {
    print_page(std::cout);
    return 0;
  };
}

}  // namespace bitgrad::cli
