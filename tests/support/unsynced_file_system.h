// The real file system, but for fsync: tests that write thousands of files need not wait for the disk.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::test {

class UnsyncedFileSystem final : public FileSystem {
 public:
  UnsyncedFileSystem() : real_(file_system()), old_(set_file_system(this)) {}
  ~UnsyncedFileSystem() override { set_file_system(old_); }
  UnsyncedFileSystem(const UnsyncedFileSystem&) = delete;
  UnsyncedFileSystem& operator=(const UnsyncedFileSystem&) = delete;

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<File>(real_.create(path));
  }
  std::unique_ptr<OutputFile> open_append(const std::string& path) override {
    return std::make_unique<File>(real_.open_append(path));
  }
  std::vector<uint8_t> read(const std::string& path) override { return real_.read(path); }
  std::unique_ptr<InputFile> open_read(const std::string& path) override { return real_.open_read(path); }
  bool exists(const std::string& path) override { return real_.exists(path); }
  bool is_directory(const std::string& path) override { return real_.is_directory(path); }
  std::vector<std::string> list(const std::string& path) override { return real_.list(path); }
  void make_directories(const std::string& path) override { real_.make_directories(path); }
  bool make_directory(const std::string& path) override { return real_.make_directory(path); }
  void rename(const std::string& from, const std::string& to) override { real_.rename(from, to); }
  void remove(const std::string& path) override { real_.remove(path); }
  void sync_directory(const std::string&) override {}
  std::unique_ptr<FileLock> lock_directory(const std::string& path) override { return real_.lock_directory(path); }

 private:
  class File final : public OutputFile {
   public:
    explicit File(std::unique_ptr<OutputFile> real) : real_(std::move(real)) {}
    void write(const void* data, size_t bytes) override { real_->write(data, bytes); }
    void flush_to_disk() override {}
    void close() override { real_->close(); }

   private:
    std::unique_ptr<OutputFile> real_;
  };
  FileSystem& real_;
  FileSystem* old_;
};

}  // namespace bitgrad::test
