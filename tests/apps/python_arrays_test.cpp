// What the Python package says of arrays and arguments that it does not take. $BITGRAD_PYTHON: a Python with numpy (and
// pandas); else python3.
#include "apps/python.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad::test;

TEST_CASE("Python: arrays that hide, name or merge values, and wrong arguments, are refused or warned of by value") {
  const TempDir temp;
  const ProcessResult r = run_program({python(), source_path("tests/scripts/python_arrays.py"), temp.path()},
                                      {{"PYTHONPATH", source_path("apps/python")},
                                       {"PYTHONDONTWRITEBYTECODE", "1"},
                                       {"BITGRAD_LIBRARY", build_path("lib/libbitgrad_c.so")}});
  if (r.code == kAbsent || r.code == 127) {
    WARN("skipped: no numpy in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  INFO(r.out << r.err);
  CHECK(r.code == 0);
}
