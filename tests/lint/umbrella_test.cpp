// What a program's first lines do: one header has everything, and plain structs are filled by naming what differs.
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "lint/source_tree.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad::lint;
using bitgrad::test::ProcessResult;
using bitgrad::test::run_program;
using bitgrad::test::TempDir;

namespace {

// Public headers that bitgrad.h leaves out, and why.
const std::map<std::string, std::string> kLeftOut = {
    {"bitgrad/base/step_scalars.h", "numbers of recorded steps, for update rules and kernels of devices"},
    {"bitgrad/c.h", "the C interface"},
    {"bitgrad/config/plugin.h", "names the commit, which would recompile every program"},
    {"bitgrad/nn/inference.h", "what exports read of a model"},
    {"bitgrad/nn/integer_graph.h", "what exports and evaluation read of a model of integers"},
    {"bitgrad/nn/integer_ops.h", "codes of single elements, which kernels of devices read"},
    {"bitgrad/ops/product.h", "how layers plan their products; programs call Quantizable::plan_linear"},
};
// Structs of its headers that are not filled by programs, and why.
const std::map<std::string, std::string> kNotFilled = {
    {"Batch", "owns its memory"},
    {"Samples", "owns its memory"},
    {"RunFolder", "is made by start_run_folder, and owns a lock"},
    {"DeviceWorkMakers", "is registered by a kind of device"},
    {"DynamicLinearOptions", "has a constructor"},
    {"LayerList", "has a constructor"},
    {"LayerListConfig", "has a constructor"},
    {"LayoutInfo", "a line of the library's own list"},
    {"RowPacking", "a line of the library's own list"},
};

std::set<std::string> umbrella() {
  std::set<std::string> headers;
  for (const SourceFile& file : source_files({"include"}))
    if (file.path == "include/bitgrad/bitgrad.h")
      for (const Include& include : includes_of(file)) headers.insert(include.target);
  return headers;
}

// Without warnings, as a program's own flags may ask.
ProcessResult compile(const std::string& compiler, const std::string& text) {
  TempDir temp;
  std::ofstream(temp.file("program.cpp")) << text;
  return run_program({compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                      "-I" + bitgrad::test::source_path("include"), "-I" + bitgrad::test::build_path("include"),
                      "-I" + bitgrad::test::source_path("tests"), temp.file("program.cpp")});
}

constexpr const char* kEachAggregate = R"(
#include "bitgrad/bitgrad.h"
#define BITGRAD_AGGREGATE(type, first, last)                       \
  void first_of_##type() {                                         \
    [[maybe_unused]] const bitgrad::type named{.first = {}};       \
  }                                                                \
  void last_of_##type() {                                          \
    [[maybe_unused]] const bitgrad::type named{.last = {}};        \
  }
#include "lint/aggregates.inc"
)";

}  // namespace

TEST_CASE("bitgrad.h includes every public header but the kernels' and those that are listed with a reason") {
  const std::set<std::string> included = umbrella();
  CHECK(included.size() > 50);
  std::string forgotten;
  std::set<std::string> known;
  for (const SourceFile& file : source_files({"include"})) {
    const std::string header = file.path.substr(8);
    known.insert(header);
    if (!file.ends_with(".h") || header == "bitgrad/bitgrad.h" || header.rfind("bitgrad/kernels/", 0) == 0) continue;
    if (included.count(header) + kLeftOut.count(header) != 1) forgotten += header + "\n";
  }
  INFO(forgotten);
  CHECK(forgotten.empty());
  for (const auto& [header, why] : kLeftOut) CHECK(known.count(header) == 1);
}

TEST_CASE("the list of aggregates has every struct of the headers that bitgrad.h includes") {
  std::set<std::string> listed;
  for (const SourceFile& file : source_files({"tests"}))
    if (file.path == "tests/lint/aggregates.inc")
      for (const Line& line : file.lines) {
        std::smatch m;
        if (std::regex_search(line.text, m, std::regex(R"(^BITGRAD_AGGREGATE\((\w+),)"))) listed.insert(m[1]);
      }
  const std::set<std::string> included = umbrella();
  std::string missing;
  std::set<std::string> seen;
  for (const SourceFile& file : source_files({"include"})) {
    if (!included.count(file.path.substr(8))) continue;
    for (const Line& line : file.lines) {
      std::smatch m;
      if (!std::regex_search(line.code, m, std::regex(R"(^struct (\w+) \{)"))) continue;
      seen.insert(m[1]);
      if (listed.count(m[1]) + kNotFilled.count(m[1]) != 1) missing += file.path + ": " + m[1].str() + "\n";
    }
  }
  INFO(missing);
  CHECK(missing.empty());
  for (const std::string& name : listed) CHECK(seen.count(name) == 1);
}

TEST_CASE("a designated initializer of one member warns about no other, for g++ and clang++", "[slow]") {
  std::vector<std::string> compilers{BITGRAD_CXX};
  if (run_program({"clang++", "--version"}).code == 0) compilers.push_back("clang++");
  for (const std::string& compiler : compilers) {
    const ProcessResult r = compile(compiler, kEachAggregate);
    INFO(compiler << "\n" << r.err);
    CHECK(r.code == 0);
  }
  // The flags would show it.
  const ProcessResult bare = compile(BITGRAD_CXX,
                                     "#include <string>\nstruct S { int a = 0; std::string b; };\n"
                                     "void f() { [[maybe_unused]] const S s{.a = 1}; }\n");
  CHECK(bare.code != 0);
}
