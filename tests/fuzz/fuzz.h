// What the fuzz targets share. A target reads its input as a file of one kind. An Error of a bad file is a right
// answer; anything else that leaves the target (another exception, an Error that says "bug") is a finding, and so are
// the sanitizers' reports, a timeout and too much memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

// Of every target; libFuzzer or replay.cpp calls it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace bitgrad::fuzz {

// Files in memory, in place of the disk while it lives. Nothing is written.
class MemoryFiles final : public FileSystem {
 public:
  MemoryFiles() : old_(set_file_system(this)) {}
  ~MemoryFiles() override { set_file_system(old_); }
  std::map<std::string, std::vector<uint8_t>> files;

  std::vector<uint8_t> read(const std::string& path) override {
    const auto found = files.find(path);
    if (found == files.end()) fail_with(ErrorCode::kData, "file", "cannot read '", path, "': it is not there.");
    return found->second;
  }
  bool exists(const std::string& path) override { return files.count(path) > 0; }
  bool is_directory(const std::string&) override { return false; }
  std::unique_ptr<OutputFile> create(const std::string&) override { return refuse(), nullptr; }
  std::unique_ptr<OutputFile> open_append(const std::string&) override { return refuse(), nullptr; }
  std::vector<std::string> list(const std::string&) override { return {}; }
  void make_directories(const std::string&) override { refuse(); }
  void rename(const std::string&, const std::string&) override { refuse(); }
  void remove(const std::string&) override { refuse(); }
  void sync_directory(const std::string&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { std::abort(); }
  FileSystem* old_;
};

// Inputs that were taken: a corpus of which none is has lost its use.
inline int taken = 0;

// Runs `read`; true when it took the input.
template <typename Read>
bool takes(Read&& read) {
  try {
    read();
    ++taken;
    return true;
  } catch (const Error& e) {
    const ErrorCode code = e.code();
    if (code == ErrorCode::kUsage || code == ErrorCode::kData || code == ErrorCode::kNonFinite) return false;
    std::fprintf(stderr, "an Error of code %d: %s\n", static_cast<int>(code), e.what());
    std::abort();
  }
}

// What follows must hold.
inline void expect(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// A safetensors file of an input. 'R': the rest as it is. Else, from the second byte on: the text of a header up to the
// first line end, then the data, which are cut or filled with zeros to what the header needs; the length of the header
// and both checksums are made right, so that whatever the text says is read.
std::vector<uint8_t> forged_safetensors(const uint8_t* data, size_t size);

}  // namespace bitgrad::fuzz
