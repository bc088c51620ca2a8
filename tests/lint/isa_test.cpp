// Code for one ISA must not leak into functions that the linker shares: a weak std:: function compiled with AVX-512 in
// one object may be the copy that the whole program uses, also on a machine without AVX-512.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "lint/source_tree.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad::lint;
using bitgrad::test::ProcessResult;
using bitgrad::test::run_program;

namespace {

// Lines between a target pragma and the pop of its options, with those of the .inc files that are included there.
void collect_region(const SourceFile& file, const std::map<std::string, const SourceFile*>& all, bool full,
                    std::string& out) {
  bool inside = full;
  for (const Line& line : file.lines) {
    if (line.code.find("#pragma GCC target") != std::string::npos) inside = true;
    if (line.code.find("#pragma GCC pop_options") != std::string::npos) inside = false;
    if (!inside) continue;
    const size_t quote = line.text.find("#include \"");
    if (quote != std::string::npos) {
      const std::string target = line.text.substr(quote + 10, line.text.rfind('"') - quote - 10);
      const auto found = all.find("src/" + target);
      if (found != all.end() && found->second->ends_with(".inc")) collect_region(*found->second, all, true, out);
    } else if (line.code.find("#include") != std::string::npos) {
      out += file.path + ":" + std::to_string(line.number) + ": a header inside the region: " + line.text + "\n";
    }
    if (std::regex_search(line.code, std::regex(R"(\bstd::(?!(u?int\d+_t|size_t|ptrdiff_t)\b))")))
      out += file.path + ":" + std::to_string(line.number) + ": " + line.text + "\n";
  }
}

// Weak symbols of each object of the archive.
std::map<std::string, std::set<std::string>> weak_symbols(const std::string& archive) {
  std::map<std::string, std::set<std::string>> weak;
  std::istringstream in(run_program({"nm", "--defined-only", archive}).out);
  std::string object;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == ':') object = line.substr(0, line.size() - 1);
    std::istringstream words(line);
    std::string address, kind, name;
    if (words >> address >> kind >> name && kind == "W") weak[object].insert(name);
  }
  return weak;
}

}  // namespace

TEST_CASE("target regions use own types only, nothing of the standard library") {
  const std::vector<SourceFile> files = source_files({"src"});
  std::map<std::string, const SourceFile*> all;
  for (const SourceFile& f : files) all[f.path] = &f;
  std::string found;
  int regions = 0;
  for (const SourceFile& f : files)
    for (const Line& line : f.lines)
      if (line.code.find("#pragma GCC target") != std::string::npos) {
        ++regions;
        collect_region(f, all, false, found);
        break;
      }
  for (const SourceFile& f : files)  // included in a target region by isa_loops.inc.in
    if (f.ends_with("/loops.inc")) collect_region(f, all, true, found);
  CHECK(regions >= 6);
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("no function that objects share holds AVX code") {
  const std::string archive = bitgrad::test::build_path("libbitgrad.a");
  if (!std::filesystem::exists(archive) || run_program({"objdump", "--version"}).code != 0) {
    WARN("skipped: needs the static library and objdump");
    return;
  }
  const auto weak = weak_symbols(archive);
  REQUIRE_FALSE(weak.empty());
  std::istringstream in(run_program({"objdump", "-d", "--no-show-raw-insn", archive}).out);
  const std::regex avx_instruction("^ *[0-9a-f]+:\\s+v[a-z]");
  std::string object, function, found;
  bool shared = false, seen_zmm = false;
  for (std::string line; std::getline(in, line);) {
    const size_t format = line.find(":     file format");
    if (format != std::string::npos) object = line.substr(0, format);
    if (line.size() > 3 && line.compare(line.size() - 2, 2, ">:") == 0) {
      function = line.substr(line.find('<') + 1, line.size() - line.find('<') - 3);
      const auto of_object = weak.find(object);
      shared = of_object != weak.end() && of_object->second.count(function) > 0;
    } else if (line.find("\tv") != std::string::npos) {
      seen_zmm = seen_zmm || line.find("%zmm") != std::string::npos;
      if (shared && std::regex_search(line, avx_instruction)) {
        found += object + ": " + function + "\n";
        shared = false;  // once a function
      }
    }
  }
  CHECK(seen_zmm);
  INFO(found);
  CHECK(found.empty());
}
