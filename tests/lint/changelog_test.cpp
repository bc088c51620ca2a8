// CHANGELOG.md: sections of entries, which tools and people can read.
#include "lint/source_tree.h"
#include "support/catch.h"

using namespace bitgrad::lint;

namespace {

// What is wrong with a line of the changelog; "" if nothing is. `in_section`: below a ### heading; `in_entry`: the line
// before belongs to an entry.
std::string fault(const std::string& line, bool in_section, bool in_entry) {
  if (std::regex_search(line, std::regex("^- [^ -]"))) return in_section ? "" : "an entry outside a section";
  if (!std::regex_search(line, std::regex("^  [^ -]")))
    return "neither a heading, '- ' and an entry, nor its next line";
  return in_entry ? "" : "the next line of no entry";
}

std::string faults(const std::vector<std::string>& lines) {
  std::string found;
  bool in_version = false, in_section = false, in_entry = false;
  int number = 0;
  for (const std::string& line : lines) {
    ++number;
    if (line.rfind("## ", 0) == 0) in_version = true;
    if (line.rfind('#', 0) == 0 || line.empty()) {
      if (!line.empty()) in_section = line.rfind("### ", 0) == 0;
      in_entry = false;
      continue;
    }
    if (!in_version) continue;  // the preamble
    const std::string what = fault(line, in_section, in_entry);
    if (!what.empty()) found += "CHANGELOG.md:" + std::to_string(number) + ": " + what + ": " + line + "\n";
    in_entry = true;
  }
  return found;
}

}  // namespace

TEST_CASE("each entry of the changelog begins with a dash below the heading of a section") {
  const std::vector<std::string> lines = lines_of("CHANGELOG.md");
  CHECK(lines.size() > 100);
  const std::string found = faults(lines);
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("the lint of the changelog sees what it forbids") {
  const std::vector<std::string> head{"# Changelog", "",      "The format.", "", "## 0.1.0", "",
                                      "### Data",    "- one", "  two"};
  CHECK(faults(head).empty());
  for (const char* line : {"-- three", " four", "five", "* six", "    seven", "  - eight", "-nine"}) {
    std::vector<std::string> lines = head;
    lines.push_back(line);
    INFO(line);
    CHECK(faults(lines).find("CHANGELOG.md:10: ") == 0);
  }
  CHECK(faults({"## 0.1.0", "- one"}) == "CHANGELOG.md:2: an entry outside a section: - one\n");
  CHECK(faults({"## 0.1.0", "### Data", "", "  one"}) == "CHANGELOG.md:4: the next line of no entry:   one\n");
}
