// Wording that help lines, key docs, errors and test names avoid: each pattern has a plainer form.
#include <regex>
#include <string>
#include <vector>

#include "lint/source_tree.h"
#include "support/catch.h"

using namespace bitgrad::lint;

namespace {

struct Literal {
  int line;
  std::string text;
  std::string before;  // the code in front of it in its line
};

// The "strings" of a file, without escapes; adjacent ones are one literal.
std::vector<Literal> literals_of(const SourceFile& file) {
  std::vector<Literal> found;
  std::string code;  // since the line before; a literal is a quotation mark
  for (const Line& line : file.lines) {
    bool quoted = false;
    if (const size_t last = code.find_last_not_of(' '); last != std::string::npos) code.erase(last + 1);
    const size_t begin = code.size();
    for (size_t i = 0; i < line.text.size(); ++i) {
      const char c = line.text[i];
      if (c == '"' && (quoted || i == 0 || line.text[i - 1] != '\'')) {
        quoted = !quoted;
        const size_t last = code.find_last_not_of(' ');
        if (quoted && (last == std::string::npos || code[last] != '"')) found.push_back({line.number, "", code});
        if (!quoted) code += '"';
      } else if (quoted) {
        if (c == '\\') ++i;
        found.back().text += c == '\\' ? ' ' : c;
      } else if (line.text.compare(i, 2, "//") == 0) {
        break;
      } else {
        code += c;
      }
    }
    if (code.size() > begin) code.erase(0, begin);
  }
  return found;
}

const char* const kMessages =
    "\\b(so many|goes with|stands?|lies|in place of|left out|(is|are) no|which no|as it is|takes|one a "
    "line|told|tells)\\b";
const char* const kNames =
    "\\b([Ww]hatever|calm|twins?|tells?|told|takes?|taken|stands?|lies?|(is|are) no|in place of|left out|so many|"
    "goes with|which no|as it is)\\b";

std::string matches(const std::vector<std::string>& folders, const char* pattern, bool names) {
  const std::regex expression(pattern), test_case("\\b[A-Z_]*CASE[A-Z_]*\\([^\"]*$");
  std::string found;
  for (const SourceFile& file : source_files(folders))
    for (const Literal& literal : literals_of(file))
      if ((!names || std::regex_search(literal.before, test_case)) && std::regex_search(literal.text, expression))
        found += file.path + ":" + std::to_string(literal.line) + ": " + literal.text + "\n";
  return found;
}

}  // namespace

TEST_CASE("messages and help lines use plain wording") {
  const std::string found = matches({"src", "apps"}, kMessages, false);
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("test names state a property in plain wording") {
  const std::string found = matches({"tests"}, kNames, true);
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("wording is searched in literals of several lines, not in comments") {
  SourceFile file{"a.cpp", {}};
  for (const char* text : {"f(\"one \\\"\" // \"takes\"", "  \"two '\", '\"',", "  g(\"three\"))"})
    file.lines.push_back({1 + static_cast<int>(file.lines.size()), text, ""});
  const std::vector<Literal> found = literals_of(file);
  REQUIRE(found.size() == 2);
  CHECK(found[0].text == "one  two '");
  CHECK(found[0].before == "f(");
  CHECK(found[1].text == "three");
  CHECK(found[1].line == 3);
}
