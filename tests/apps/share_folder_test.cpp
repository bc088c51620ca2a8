// Where the program looks for its models if it is configured with an absolute CMAKE_INSTALL_DATADIR.
#include <cstdlib>
#include <string>

#include "bitgrad/base/program.h"
#include "support/catch.h"

#define BITGRAD_SHARE_FOLDER "/nonexistent/share"
#include "apps/bitgrad/zoo.cpp"  // NOLINT(bugprone-suspicious-include): configured with another folder
#undef BITGRAD_SHARE_FOLDER

TEST_CASE("an absolute share folder is the models' own, not one below the program's folder") {
  ::unsetenv("BITGRAD_MODELS");
  CHECK(bitgrad::cli::models_folder() == "/nonexistent/share/bitgrad/models");
  ::setenv("BITGRAD_MODELS", "/elsewhere", 1);
  CHECK(bitgrad::cli::models_folder() == "/elsewhere");
  ::unsetenv("BITGRAD_MODELS");
}
