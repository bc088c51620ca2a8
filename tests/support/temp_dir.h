// A fresh directory that is removed with its object.
#pragma once

#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace bitgrad::test {

// Of a file system in memory if there is one with 1 GiB to spare, otherwise of the disk: for thousands of small files.
inline std::filesystem::path memory_or_disk() {
  struct statvfs memory = {};
  const bool room = ::statvfs("/dev/shm", &memory) == 0 && memory.f_bavail * memory.f_frsize >= (uint64_t{1} << 30);
  return room && ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& in = std::filesystem::temp_directory_path()) {
    std::string pattern = (in / "bitgrad-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a directory for the test");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace bitgrad::test
