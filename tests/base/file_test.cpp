#include "bitgrad/base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using test::FaultyFileSystem;

std::string text_of(const std::string& path) {
  const std::vector<uint8_t> bytes = file_system().read(path);
  return {bytes.begin(), bytes.end()};
}

TEST_CASE("An atomic write makes a file, replaces it and leaves nothing else behind") {
  const test::TempDir dir;
  const std::string path = dir.file("a.txt");
  write_file_atomically(path, "one");
  CHECK(text_of(path) == "one");
  write_file_atomically(path, std::string("second"));
  CHECK(text_of(path) == "second");
  write_file_atomically(path, [](OutputFile& file) {
    file.write("ab", 2);
    file.write(nullptr, 0);
    file.write("cd", 2);
  });
  CHECK(text_of(path) == "abcd");
  write_file_atomically(path, "");
  CHECK(text_of(path).empty());
  CHECK(file_system().list(dir.path()) == std::vector<std::string>{"a.txt"});
}

TEST_CASE("For every failing call of an atomic write the file is old or new as a whole, and the error is reported") {
  const test::TempDir dir;
  const std::string path = dir.file("a.bin"), old(5000, 'o'), next(7000, 'n');
  const auto save = [&] {
    write_file_atomically(path, [&](OutputFile& file) {
      file.write(next.data(), 3000);
      file.write(next.data() + 3000, 4000);
    });
  };
  write_file_atomically(path, old);
  int calls = 0;
  {
    FaultyFileSystem counting(-1, FaultyFileSystem::When::kBefore, false);
    save();
    calls = counting.calls();
    CHECK(counting.names() ==
          std::vector<std::string>{"create", "write", "write", "flush_to_disk", "close", "rename", "sync_directory"});
  }
  using When = FaultyFileSystem::When;
  for (When when : {When::kBefore, When::kAfter, When::kHalfWritten}) {
    for (bool forever : {false, true}) {
      for (int at = 0; at < calls; ++at) {
        write_file_atomically(path, old);
        std::string error, name;
        {
          FaultyFileSystem faulty(at, when, forever);
          error = error_of(save);
          name = faulty.names()[static_cast<size_t>(at)];
        }
        INFO(name << " fails, when " << static_cast<int>(when) << ", forever " << forever);
        CHECK(contains(error, name + " was made to fail"));
        const bool renamed = name == "sync_directory" || (name == "rename" && when == When::kAfter);
        CHECK((text_of(path) == (renamed ? next : old)));
        if (!forever) CHECK(file_system().list(dir.path()) == std::vector<std::string>{"a.bin"});
        file_system().remove(path + ".tmp-" + std::to_string(::getpid()));
      }
    }
  }
}

TEST_CASE("An exception of the writer leaves the old file and no temporary one") {
  const test::TempDir dir;
  const std::string path = dir.file("a.txt");
  write_file_atomically(path, "old");
  CHECK_THROWS_AS(write_file_atomically(path,
                                        [](OutputFile& file) {
                                          file.write("half", 4);
                                          throw std::logic_error("writer");
                                        }),
                  std::logic_error);
  CHECK(text_of(path) == "old");
  CHECK(file_system().list(dir.path()) == std::vector<std::string>{"a.txt"});
}

TEST_CASE("A file never replaces a pipe or a device") {
  const test::TempDir dir;
  const std::string pipe = dir.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, std::string("/dev/null")})
    CHECK(contains(error_of([&] { write_file_atomically(path, "new"); }),
                   "'" + path + "' is a device, a pipe or a socket"));
  CHECK(file_system().list(dir.path()) == std::vector<std::string>{"pipe"});
}

TEST_CASE("A full disk is an error of code 4 that names the file and the reason") {
  if (::access("/dev/full", W_OK) != 0) {
    WARN("skipped: needs /dev/full");
    return;
  }
  const auto file = file_system().create("/dev/full");
  const auto call = [&] { file->write("x", 1); };
  CHECK(error_code_of(call) == 4);
  CHECK(contains(error_of(call), "'/dev/full': No space left on device"));
}

TEST_CASE("Files that cannot be read are errors of code 3 that name path and reason") {
  const test::TempDir dir;
  FileSystem& files = file_system();
  const std::string absent = dir.file("absent");
  CHECK(contains(error_of([&] { files.read(absent); }), "cannot read '" + absent + "': No such file or directory"));
  CHECK(error_code_of([&] { files.read(absent); }) == 3);
  CHECK(contains(error_of([&] { files.read(dir.path()); }), "'" + dir.path() + "': Is a directory"));
  CHECK(error_code_of([&] { files.read(dir.path()); }) == 3);
  CHECK(contains(error_of([&] { files.list(absent); }), absent));
  CHECK(contains(error_of([&] { files.create(dir.file("no/such")); }), "cannot create"));
  CHECK(contains(error_of([&] { files.open_append(dir.path()); }), "Is a directory"));
  CHECK(contains(error_of([&] { files.rename(absent, dir.file("b")); }), absent));
  CHECK(contains(error_of([&] { files.sync_directory(absent); }), absent));
  CHECK(contains(error_of([&] { write_file_atomically(dir.file("no/such"), "x"); }), "no/such"));
}

TEST_CASE("Files that are not regular are refused at once with their kind, without waiting for a pipe") {
  const test::TempDir dir;
  const std::string pipe = dir.file("pipe"), socket = dir.file("socket");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(::mknod(socket.c_str(), S_IFSOCK | 0600, 0) == 0);
  FileSystem& files = file_system();
  const std::pair<std::string, const char*> cases[] = {
      {pipe, "a pipe"}, {socket, "a socket"}, {"/dev/zero", "a device"}, {"/dev/null", "a device"}};
  for (const auto& [path, what] : cases) {
    INFO(path);
    const std::string text = "cannot read '" + path + "': it is " + what + ", expected a regular file.";
    CHECK(contains(error_of([&] { files.read(path); }), text));
    CHECK(contains(error_of([&] { files.open_read(path); }), text));
    CHECK(contains(error_of([&] { read_file(path, 10); }), text));
    CHECK(error_code_of([&] { files.read(path); }) == 3);
  }
  for (const auto& [path, what] : {cases[0], cases[1]}) {
    INFO(path);
    CHECK(contains(error_of([&] { files.create(path); }), "cannot create '" + path + "': it is " + what));
    CHECK(contains(error_of([&] { files.open_append(path); }), "cannot append to '" + path + "': it is " + what));
    CHECK(error_code_of([&] { files.create(path); }) == 3);
  }
  const auto null = files.open_append("/dev/null");  // a device takes what is written
  null->write("x", 1);
  null->close();
}

TEST_CASE("A file is read in parts, and up to a limit") {
  const test::TempDir dir;
  write_file_atomically(dir.file("a"), "0123456789");
  const std::unique_ptr<InputFile> on_disk = file_system().open_read(dir.file("a"));
  const std::unique_ptr<InputFile> in_memory = memory_file(file_system().read(dir.file("a")));
  for (InputFile* file : {on_disk.get(), in_memory.get()}) {
    CHECK(file->size() == 10);
    std::string part(4, '-');
    CHECK(file->read_at(3, part.data(), 4) == 4);
    CHECK(part == "3456");
    CHECK(file->read_at(8, part.data(), 4) == 2);
    CHECK(part == "8956");
    CHECK(file->read_at(10, part.data(), 4) == 0);
    CHECK(file->read_at(int64_t{1} << 40, part.data(), 4) == 0);
  }
  CHECK(read_file(dir.file("a"), 10).size() == 10);
  const auto too_long = [&] { read_file(dir.file("a"), 9); };
  CHECK(error_code_of(too_long) == 3);
  CHECK(contains(error_of(too_long), "'" + dir.file("a") + "' has 10 bytes, at most 9 are read."));
  CHECK(contains(error_of([] { read_file("/proc/self/status", 9); }), "has more bytes, at most 9 are read."));
}

TEST_CASE("Reading follows files whose size is not known before") {
  CHECK(!text_of("/proc/self/status").empty());
  const test::TempDir dir;
  const std::string big(3'000'001, 'b');
  write_file_atomically(dir.file("big"), big);
  CHECK((text_of(dir.file("big")) == big));
}

TEST_CASE("Append, list, exists, directories and remove do what their names say") {
  const test::TempDir dir;
  FileSystem& files = file_system();
  for (const char* part : {"one\n", "two\n"}) {
    const auto file = files.open_append(dir.file("log"));
    file->write(part, 4);
    file->flush_to_disk();
    file->close();
    file->close();
    CHECK(contains(error_of([&] { file->write("x", 1); }), "after close"));
  }
  CHECK(text_of(dir.file("log")) == "one\ntwo\n");
  files.make_directories(dir.file("x/y/z"));
  CHECK(files.make_directory(dir.file("x/once")));
  CHECK_FALSE(files.make_directory(dir.file("x/once")));
  files.make_directories(dir.file("x/y/z"));
  CHECK(files.is_directory(dir.file("x/y/z")));
  CHECK(!files.is_directory(dir.file("log")));
  CHECK(files.exists(dir.file("log")));
  CHECK(!files.exists(dir.file("nothing")));
  CHECK(error_code_of([&] { files.make_directories(dir.file("log")); }) == 3);
  CHECK(error_code_of([&] { files.make_directories(dir.file("log/sub")); }) == 3);
  CHECK(files.list(dir.path()) == std::vector<std::string>{"log", "x"});
  files.remove(dir.file("log"));
  files.remove(dir.file("log"));
  CHECK(!files.exists(dir.file("log")));
  CHECK(contains(error_of([&] { files.remove(dir.file("x")); }), "cannot remove"));
}

TEST_CASE("A replaced file system is used until it is given back") {
  FileSystem* const real = &file_system();
  {
    FaultyFileSystem faulty(0, FaultyFileSystem::When::kBefore, true);
    CHECK(&file_system() == &faulty);
    CHECK(error_code_of([] { file_system().read("/dev/null"); }) == 4);
  }
  CHECK(&file_system() == real);
  CHECK(set_file_system(nullptr) == real);
  CHECK(!text_of("/proc/self/status").empty());
  CHECK(error_code_of([] { file_system().read("/dev/zero"); }) == 3);
}

}  // namespace
}  // namespace bitgrad
