// The README and the pages that begin the guide: their commands run as they stand there, in order, in an empty folder.
// The guide is a site without broken links.
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "apps/cli.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// The commands of a page that a clean folder can run: what builds the program is tested by the build.
std::string commands_of(const std::string& page) {
  std::istringstream lines(slurp(source_path(page)));
  std::string commands;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
    } else if (inside && !line.starts_with("make ") && !line.starts_with("export PATH")) {
      commands += line + '\n';
    }
  }
  return commands;
}

ProcessResult in_shell(const std::string& commands, const std::string& folder) {
  const std::string script = "set -e; cd '" + folder + "'; PATH='" + build_path("bin") + "':$PATH\n" + commands;
  return run_program({"/bin/bash", "-c", script}, {{"BITGRAD_DATA", ""}});
}

}  // namespace

TEST_CASE("the commands of the README run in an empty folder") {
  const TempDir dir;
  const std::string commands = commands_of("README.md");
  CHECK(contains(commands, "bitgrad train mine.yaml"));
  const ProcessResult result = in_shell(commands, dir.path());
  INFO(commands << result.out << result.err);
  CHECK(result.code == 0);
  CHECK(contains(result.out, "logits equal bit for bit"));
}

TEST_CASE("the commands of the first run in 15 minutes run in an empty folder") {
  const TempDir dir;
  const std::string commands = commands_of("docs/first_run.md");
  CHECK(contains(commands, "bitgrad sweep"));
  const ProcessResult result = in_shell(commands, dir.path());
  INFO(commands << result.out << result.err);
  CHECK(result.code == 0);
  CHECK(std::filesystem::exists(dir.file("model.onnx")));
}

TEST_CASE("mkdocs builds the guide without a warning") {
  const TempDir dir;
  const ProcessResult result = run_program({"/bin/sh", "-c",
                                            "command -v mkdocs >/dev/null || exit 77; cd '" + source_path() +
                                                "' && exec mkdocs build --strict --quiet --site-dir '" +
                                                dir.file("site") + "'"});
  if (result.code == 77) {
    WARN("skipped: mkdocs is not installed");
    return;
  }
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(std::filesystem::exists(dir.file("site/first_run/index.html")));
}
