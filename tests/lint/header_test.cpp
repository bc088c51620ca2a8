// Every public header compiles alone, with nothing but the include folders of an installed bitgrad.
#include <fstream>

#include "lint/source_tree.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad::lint;
using bitgrad::test::ProcessResult;
using bitgrad::test::run_program;
using bitgrad::test::TempDir;

TEST_CASE("every public header compiles alone and twice", "[slow]") {
  TempDir temp;
  int headers = 0;
  for (const SourceFile& file : source_files({"include"})) {
    if (!file.ends_with(".h")) continue;
    ++headers;
    const std::string include = "#include \"" + file.path.substr(8) + "\"\n";
    std::ofstream(temp.file("alone.cpp")) << include << include;
    const ProcessResult r =
        run_program({BITGRAD_CXX, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                     "-I" + bitgrad::test::source_path("include"), "-I" + bitgrad::test::build_path("include"), temp.file("alone.cpp")});
    INFO(file.path << "\n" << r.err);
    CHECK(r.code == 0);
  }
  CHECK(headers > 40);
}
