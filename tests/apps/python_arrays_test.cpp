// What the Python package says of arrays and arguments that it does not take. $BITGRAD_PYTHON: a Python with numpy (and
// pandas); else python3.
#include <string>
#include <vector>

#include "apps/python.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad::test;

namespace {

void run_script(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{python(), source_path("tests/scripts/" + name)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ProcessResult r = run_program(words, {{"PYTHONPATH", source_path("apps/python")},
                                              {"PYTHONDONTWRITEBYTECODE", "1"},
                                              {"BITGRAD_LIBRARY", build_path("lib/libbitgrad_c.so")}});
  if (r.code == kAbsent || r.code == 127) {
    WARN("skipped: no numpy or transformers in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  INFO(r.out << r.err);
  CHECK(r.code == 0);
}

}  // namespace

TEST_CASE("Python: arrays that hide, name or merge values, and wrong arguments, are refused or warned of by value") {
  const TempDir temp;
  run_script("python_arrays.py", {temp.path()});
}

TEST_CASE("Python: models, runs and loops find the columns of a table by name, as those of a CSV file") {
  const TempDir temp;
  run_script("python_tables.py", {temp.path(), build_path("bin/bitgrad")});
}

TEST_CASE("Python: conversations become ids and labels by a template of transformers, and a run reads them") {
  const TempDir temp;
  run_script("python_chat.py",
             {temp.path(), build_path("bin/bitgrad"), source_path("tests/golden/tokenizers/gpt2.json")});
}
