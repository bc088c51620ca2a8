// Reads whole files up to a size limit, and files from memory.
#include "base/file_contents.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

class MemoryFile final : public InputFile {
 public:
  explicit MemoryFile(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return std::ssize(bytes_); }
  size_t read_at(int64_t offset, void* to, size_t bytes) override {
    if (offset >= size()) return 0;
    const size_t part = std::min(bytes, static_cast<size_t>(size() - offset));
    std::copy_n(bytes_.data() + offset, part, static_cast<uint8_t*>(to));
    return part;
  }

 private:
  std::vector<uint8_t> bytes_;
};

// Reads to the end, but at most upper + 1 bytes. `size`: the expected number of bytes.
template <typename ReadSome>
std::vector<uint8_t> read_to_end(const std::string& path, int64_t size, int64_t upper, ReadSome read_some) {
  std::vector<uint8_t> bytes;
  try {
    const size_t limit = static_cast<size_t>(upper) + 1;
    size_t filled = 0;
    // One byte more than `size`, so that the end is detected without growing the buffer.
    bytes.resize(std::min(static_cast<size_t>(std::max<int64_t>(size, 0)) + 1, limit));
    while (filled < limit) {
      const size_t got = read_some(static_cast<int64_t>(filled), bytes.data() + filled, bytes.size() - filled);
      if (got == 0) break;
      filled += got;
      if (filled == bytes.size()) bytes.resize(std::min(bytes.size() * 2 + 4096, limit));
    }
    bytes.resize(filled);
    return bytes;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  fail_with(ErrorCode::kMemory, "file", "cannot read '", printable(path),
            "': ", std::generic_category().message(ENOMEM), '.');
}

[[noreturn]] void fail_size(const std::string& path, const std::string& got, int64_t max_bytes) {
  fail_with(ErrorCode::kData, "file", "'", printable(path), "' has ", got, " bytes, at most ", max_bytes, " are read.");
}

}  // namespace

std::vector<uint8_t> detail::read_whole(InputFile& file, const std::string& path) {
  constexpr int64_t kNoLimit = int64_t{1} << 62;
  return read_to_end(path, file.size(), kNoLimit,
                     [&](int64_t offset, uint8_t* to, size_t count) { return file.read_at(offset, to, count); });
}

std::unique_ptr<InputFile> FileSystem::open_read(const std::string& path) { return memory_file(read(path)); }

std::unique_ptr<InputFile> memory_file(std::vector<uint8_t> bytes) {
  return std::make_unique<MemoryFile>(std::move(bytes));
}

std::vector<uint8_t> read_file(const std::string& path, int64_t max_bytes) {
  const std::unique_ptr<InputFile> file = file_system().open_read(path);
  if (file->size() > max_bytes) fail_size(path, concat(file->size()), max_bytes);
  std::vector<uint8_t> bytes =
      read_to_end(path, file->size(), max_bytes,
                  [&](int64_t offset, uint8_t* to, size_t count) { return file->read_at(offset, to, count); });
  if (std::ssize(bytes) > max_bytes) fail_size(path, "more", max_bytes);
  return bytes;
}

std::vector<uint8_t> read_standard_input(int64_t max_bytes) {
  const std::string name = "standard input";
  std::vector<uint8_t> bytes = read_to_end(name, 0, max_bytes, [&](int64_t, uint8_t* to, size_t count) {
    for (;;) {
      const ssize_t got = ::read(STDIN_FILENO, to, count);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR)
        fail_with(ErrorCode::kData, "file", "cannot read '", name, "': ", std::generic_category().message(errno), '.');
    }
  });
  if (std::ssize(bytes) > max_bytes) fail_size(name, "more", max_bytes);
  return bytes;
}

}  // namespace bitgrad
