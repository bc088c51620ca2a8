// A file system with a single file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::test {

// During its lifetime, every file reads as these bytes: thousands of damaged files, none of which is written to disk.
class OneFile final : public FileSystem {
 public:
  std::vector<uint8_t> bytes;
  OneFile() : old_(set_file_system(this)) {}
  ~OneFile() override { set_file_system(old_); }
  std::vector<uint8_t> read(const std::string&) override { return bytes; }
  bool exists(const std::string&) override { return true; }
  bool is_directory(const std::string&) override { return false; }
  std::unique_ptr<OutputFile> create(const std::string&) override { return nullptr; }
  std::unique_ptr<OutputFile> open_append(const std::string&) override { return nullptr; }
  std::vector<std::string> list(const std::string&) override { return {}; }
  void make_directories(const std::string&) override {}
  void rename(const std::string&, const std::string&) override {}
  void remove(const std::string&) override {}
  void sync_directory(const std::string&) override {}

 private:
  FileSystem* old_;
};

}  // namespace bitgrad::test
