#include "bitgrad/base/file_group.h"

#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "support/catch.h"
#include "support/faulty_file_system.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void write_both(const TempDir& temp, const std::string& text) {
  FileGroup group;
  write_file_atomically(temp.file("a"), text);
  {
    FileGroup inner;
    write_file_atomically(temp.file("b"), text);
    inner.commit();
  }
  CHECK(slurp(temp.file("b")) != text);
  group.commit();
}

}  // namespace

TEST_CASE("Files of a group are replaced together, whatever call fails before the first rename") {
  const TempDir temp;
  write_both(temp, "old");
  CHECK(slurp(temp.file("a")) == "old");
  CHECK(slurp(temp.file("b")) == "old");
  int calls = 0;
  {
    FaultyFileSystem counts(-1, FaultyFileSystem::When::kBefore, false);
    write_both(temp, "older");
    for (const std::string& name : counts.names()) {
      if (name == "rename") break;
      ++calls;
    }
  }
  REQUIRE(calls >= 8);  // twice create, write, flush, close
  for (int i = 0; i < calls; ++i)
    for (const auto when : {FaultyFileSystem::When::kBefore, FaultyFileSystem::When::kHalfWritten}) {
      {
        FaultyFileSystem fails(i, when, false);
        CHECK_THROWS_AS(write_both(temp, "new"), Error);
      }
      CHECK(slurp(temp.file("a")) == "older");
      CHECK(slurp(temp.file("b")) == "older");
      CHECK(file_system().list(temp.path()).size() == 2);
    }
  write_file_atomically(temp.file("a"), "alone");  // no group: at once
  CHECK(slurp(temp.file("a")) == "alone");
}
