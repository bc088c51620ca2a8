#include "bitgrad/base/file.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
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

TEST_CASE("Files of a group are replaced together or not at all, for every failing call") {
  const TempDir temp;
  write_both(temp, "old");
  CHECK(slurp(temp.file("a")) == "old");
  CHECK(slurp(temp.file("b")) == "old");
  std::vector<std::string> calls;
  {
    FaultyFileSystem counts(-1, FaultyFileSystem::When::kBefore, false);
    write_both(temp, "older");
    calls = counts.names();
  }
  // Twice create, write, flush, close; twice remove, rename, sync; then the old files are removed.
  REQUIRE(calls.size() >= 16);
  const int replacing = static_cast<int>(calls.size()) - 2;
  for (int i = 0; i < replacing; ++i)
    for (const auto when :
         {FaultyFileSystem::When::kBefore, FaultyFileSystem::When::kAfter, FaultyFileSystem::When::kHalfWritten}) {
      INFO(calls[static_cast<size_t>(i)] << ", call " << i);
      {
        FaultyFileSystem fails(i, when, false);
        CHECK_THROWS_AS(write_both(temp, "new"), Error);
      }
      CHECK(slurp(temp.file("a")) == "older");
      CHECK(slurp(temp.file("b")) == "older");
      CHECK(file_system().list(temp.path()).size() == 2);
    }
  // A file that was not there is not there again.
  std::filesystem::remove(temp.file("a"));
  std::filesystem::remove(temp.file("b"));
  const auto second = std::find(calls.rbegin(), calls.rend(), "rename");
  {
    FaultyFileSystem fails(static_cast<int>(calls.rend() - second) - 3, FaultyFileSystem::When::kBefore, false);
    CHECK_THROWS_AS(write_both(temp, "new"), Error);
    CHECK(fails.names().back() == "remove");
  }
  CHECK(file_system().list(temp.path()).empty());
  {
    write_both(temp, "newer");
    FaultyFileSystem fails(replacing, FaultyFileSystem::When::kBefore, false);
    write_both(temp, "newest");  // an old file that cannot be removed
  }
  CHECK(slurp(temp.file("a")) == "newest");
  CHECK(slurp(temp.file("b")) == "newest");
  // A folder in the way is not moved.
  {
    FileGroup group;
    write_file_atomically(temp.file("a"), "new");
    write_file_atomically(temp.file("b"), "new");
    std::filesystem::remove(temp.file("b"));
    std::filesystem::create_directory(temp.file("b"));
    CHECK_THROWS_AS(group.commit(), Error);
  }
  CHECK(slurp(temp.file("a")) == "newest");
  CHECK(std::filesystem::is_directory(temp.file("b")));
  write_file_atomically(temp.file("a"), "alone");  // no group: at once
  CHECK(slurp(temp.file("a")) == "alone");
}
