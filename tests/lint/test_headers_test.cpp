// What the headers of tests define has a name of its own. Two types, or two inline functions of the same parameters, of
// one name in different headers are one symbol to the linker, which keeps either (the one definition rule,
// [basic.def.odr]).
#include <map>
#include <regex>
#include <set>

#include "lint/source_tree.h"
#include "support/catch.h"

namespace bitgrad::lint {
namespace {

// "namespace::Type" or "namespace::function(parameter types)" of each definition that begins a line.
std::vector<std::string> definitions_of(const SourceFile& file) {
  static const std::regex kDefinition(
      R"((?:^|\n)(?:namespace ([\w:]+) \{|(?:struct|class) (\w+)(?: final)?(?: :[^{;]*)? \{|inline [^=;{]*?(\w+)\(([^{;]*?)\)[^{;(]*\{))");
  static const std::regex kDefault(R"( = [\w:.\-]*(\{\})?)"), kName(R"( \w+(?=,|$))"), kSpace(R"(\s+)");
  std::string text, scope;
  for (const Line& line : file.lines) text += std::regex_replace(line.code, kDefault, "") + "\n";
  std::vector<std::string> names;
  for (std::sregex_iterator m(text.begin(), text.end(), kDefinition), end; m != end; ++m) {
    if ((*m)[1].matched) {
      scope = (*m)[1].str() + "::";
    } else if ((*m)[2].matched) {
      names.push_back(scope + (*m)[2].str());
    } else {
      const std::string parameters = std::regex_replace((*m)[4].str(), kSpace, " ");
      names.push_back(scope + (*m)[3].str() + "(" + std::regex_replace(parameters, kName, "") + ")");
    }
  }
  return names;
}

TEST_CASE("headers of tests define no type and no function that another one defines") {
  std::map<std::string, std::set<std::string>> files;
  for (const SourceFile& file : source_files({"tests"}))
    if (file.ends_with(".h"))
      for (const std::string& name : definitions_of(file)) files[name].insert(file.path);
  CHECK(files.size() > 500);
  std::string twice;
  for (const auto& [name, paths] : files) {
    if (paths.size() < 2) continue;
    twice += name + ":";
    for (const std::string& path : paths) twice += " " + path;
    twice += "\n";
  }
  INFO(twice);
  CHECK(twice.empty());
}

}  // namespace
}  // namespace bitgrad::lint
