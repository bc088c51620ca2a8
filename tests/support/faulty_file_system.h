// A file system whose n-th call fails, before or after it has taken effect. All other calls go to the real one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad::test {

class FaultyFileSystem final : public FileSystem {
 public:
  enum class When { kBefore, kAfter, kHalfWritten };  // kHalfWritten: a write stores half its bytes; else as kBefore

  // fail_at: index of the failing call, from 0; negative: none. forever: all later calls fail too.
  FaultyFileSystem(int fail_at, When when, bool forever)
      : real_(file_system()), fail_at_(fail_at), when_(when), forever_(forever) {
    old_ = set_file_system(this);
  }
  ~FaultyFileSystem() override { set_file_system(old_); }
  FaultyFileSystem(const FaultyFileSystem&) = delete;
  FaultyFileSystem& operator=(const FaultyFileSystem&) = delete;

  int calls() const { return static_cast<int>(names_.size()); }
  const std::vector<std::string>& names() const { return names_; }

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return make<std::unique_ptr<OutputFile>>("create", [&] { return wrap(real_.create(path)); });
  }
  std::unique_ptr<OutputFile> open_append(const std::string& path) override {
    return make<std::unique_ptr<OutputFile>>("open_append", [&] { return wrap(real_.open_append(path)); });
  }
  std::vector<uint8_t> read(const std::string& path) override {
    return make<std::vector<uint8_t>>("read", [&] { return real_.read(path); });
  }
  bool exists(const std::string& path) override { return real_.exists(path); }
  bool is_directory(const std::string& path) override { return real_.is_directory(path); }
  std::vector<std::string> list(const std::string& path) override {
    return make<std::vector<std::string>>("list", [&] { return real_.list(path); });
  }
  void make_directories(const std::string& path) override {
    act("make_directories", [&] { real_.make_directories(path); });
  }
  void rename(const std::string& from, const std::string& to) override {
    act("rename", [&] { real_.rename(from, to); });
  }
  void remove(const std::string& path) override {
    act("remove", [&] { real_.remove(path); });
  }
  void sync_directory(const std::string& path) override {
    act("sync_directory", [&] { real_.sync_directory(path); });
  }

 private:
  class File final : public OutputFile {
   public:
    File(FaultyFileSystem& system, std::unique_ptr<OutputFile> real) : system_(system), real_(std::move(real)) {}
    void write(const void* data, size_t bytes) override {
      system_.act(
          "write", [&] { real_->write(data, bytes); }, [&] { real_->write(data, bytes / 2); });
    }
    void flush_to_disk() override {
      system_.act("flush_to_disk", [&] { real_->flush_to_disk(); });
    }
    void close() override {
      system_.act("close", [&] { real_->close(); });
    }

   private:
    FaultyFileSystem& system_;
    std::unique_ptr<OutputFile> real_;
  };

  std::unique_ptr<OutputFile> wrap(std::unique_ptr<OutputFile> real) {
    return std::make_unique<File>(*this, std::move(real));
  }

  static void nothing() {}

  template <typename Call, typename Half = void (*)()>
  void act(const char* name, Call call, Half half = nothing) {
    const int now = calls();
    names_.push_back(name);
    const bool fails = fail_at_ >= 0 && (now == fail_at_ || (forever_ && now > fail_at_));
    if (fails && when_ == When::kHalfWritten) half();
    if (!fails || when_ == When::kAfter) call();
    if (fails) fail_with(ErrorCode::kMemory, "fault", name, " was made to fail.");
  }
  template <typename Result, typename Call>
  Result make(const char* name, Call call) {
    Result result{};
    act(name, [&] { result = call(); });
    return result;
  }

  FileSystem& real_;
  FileSystem* old_ = nullptr;
  int fail_at_;
  When when_;
  bool forever_;
  std::vector<std::string> names_;
};

}  // namespace bitgrad::test
