// File calls on POSIX; whole files up to a size limit, and files from memory.
#include "bitgrad/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

[[noreturn]] void fail_file(std::string_view what, const std::string& path, int number) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG || number == ENOMEM;
  const bool broken = number == EIO && what != "read" && what != "list";  // a failing disk
  fail_with(full || broken ? ErrorCode::kMemory : ErrorCode::kData, "file", "cannot ", what, " '", printable(path),
            "': ", std::generic_category().message(number), '.');
}

// Retries a call while signals interrupt it.
template <typename Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

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

// All bytes, whatever size() reports (files in /proc report 0). Throws Error(kMemory) that names `path` if they do not
// fit in memory.
std::vector<uint8_t> read_whole(InputFile& file, const std::string& path) {
  constexpr int64_t kNoLimit = int64_t{1} << 62;
  return read_to_end(path, file.size(), kNoLimit,
                     [&](int64_t offset, uint8_t* to, size_t count) { return file.read_at(offset, to, count); });
}

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int open_or_fail(const std::string& path, int flags, std::string_view what) {
  const int fd = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (fd < 0) fail_file(what, path, errno);
  return fd;
}

// Describes a path that is not a regular file.
std::string_view kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "of an unknown kind";
}

void require_regular(mode_t mode, const std::string& path) {
  if (S_ISDIR(mode)) fail_file("read", path, EISDIR);
  if (!S_ISREG(mode))
    fail_with(ErrorCode::kData, "file", "cannot read '", printable(path), "': it is ", kind_of_file(mode),
              ", expected a regular file.");
}

struct stat status_of(int fd, const std::string& path) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0) fail_file("read", path, errno);
  return status;
}

// Opening a device may have side effects, so the path is checked first. It may become a pipe in between: O_NONBLOCK
// keeps open from waiting for the other end.
int open_regular(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) require_regular(status.st_mode, path);
  Descriptor file(open_or_fail(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, "read"));
  require_regular(status_of(file.get(), path).st_mode, path);
  return file.release();
}

// Devices are valid outputs (/dev/null, /dev/full). A pipe is refused: opening it would wait for a reader, and writing
// fails once the reader is gone.
int open_output(const std::string& path, int flags, std::string_view what) {
  struct stat status = {};
  const auto refuse = [&] {
    fail_with(ErrorCode::kData, "file", "cannot ", what, " '", printable(path), "': it is ",
              kind_of_file(status.st_mode), ", expected a regular file.");
  };
  // A link of a folder from elsewhere would lead what is appended into any file. Links to devices stay.
  const bool link = (flags & O_APPEND) != 0 && ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
  if (link && (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)))
    fail_with(ErrorCode::kData, "file", "cannot ", what, " '", printable(path),
              "': it is a link to another file, expected a regular file. Remove the link.");
  const auto waits = [&] { return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode); };
  if (::stat(path.c_str(), &status) == 0 && waits()) refuse();
  Descriptor file(open_or_fail(path, flags | O_NONBLOCK | O_NOCTTY, what));
  status = status_of(file.get(), path);
  if (waits()) refuse();
  ::fcntl(file.get(), F_SETFL, flags & O_APPEND);  // clears O_NONBLOCK
  return file.release();
}

void sync_or_fail(int fd, const std::string& path) {
  // Never retried after an error: the kernel has dropped the dirty pages, so a second fsync would falsely succeed.
  // EINVAL: a pipe or device that has nothing to sync.
  if (::fsync(fd) != 0 && errno != EINVAL) fail_file("write to disk", path, errno);
}

class PosixOutputFile final : public OutputFile {
 public:
  PosixOutputFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  void write(const void* data, size_t bytes) override {
    require_open();
    const char* from = static_cast<const char*>(data);
    constexpr size_t kMostPerCall = size_t{1} << 30;  // Linux writes at most 2 GiB per call
    while (bytes > 0) {
      const size_t part = std::min(bytes, kMostPerCall);
      const ssize_t written = uninterrupted([&] { return ::write(fd_.get(), from, part); });
      if (written <= 0) fail_file("write", path_, written < 0 ? errno : EIO);
      from += written;
      bytes -= static_cast<size_t>(written);
    }
  }

  void flush_to_disk() override {
    require_open();
    sync_or_fail(fd_.get(), path_);
  }

  void close() override {
    if (fd_.get() < 0) return;
    // On Linux the descriptor is closed even after EINTR: this is not an error and must not be retried.
    if (::close(fd_.release()) != 0 && errno != EINTR) fail_file("close", path_, errno);
  }

 private:
  void require_open() const { ensure(fd_.get() >= 0, "file", "'", path_, "' is used after close."); }

  Descriptor fd_;
  std::string path_;
};

class PosixInputFile final : public InputFile {
 public:
  explicit PosixInputFile(const std::string& path) : fd_(open_regular(path)), path_(path) {
    size_ = status_of(fd_.get(), path).st_size;
  }
  int64_t size() const override { return size_; }
  size_t read_at(int64_t offset, void* to, size_t bytes) override {
    constexpr size_t kMostPerCall = size_t{1} << 30;
    size_t done = 0;
    while (done < bytes) {
      const size_t part = std::min(bytes - done, kMostPerCall);
      const ssize_t got = uninterrupted(
          [&] { return ::pread(fd_.get(), static_cast<char*>(to) + done, part, offset + static_cast<off_t>(done)); });
      if (got < 0) fail_file("read", path_, errno);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  Descriptor fd_;
  std::string path_;
  int64_t size_ = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<PosixOutputFile>(open_output(path, O_WRONLY | O_CREAT | O_TRUNC, "create"), path);
  }

  std::unique_ptr<OutputFile> open_append(const std::string& path) override {
    return std::make_unique<PosixOutputFile>(open_output(path, O_WRONLY | O_CREAT | O_APPEND, "append to"), path);
  }

  std::unique_ptr<InputFile> open_read(const std::string& path) override {
    return std::make_unique<PosixInputFile>(path);
  }

  std::vector<uint8_t> read(const std::string& path) override {
    PosixInputFile file(path);
    return read_whole(file, path);
  }

  bool exists(const std::string& path) override {
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0;
  }

  bool is_directory(const std::string& path) override {
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  }

  std::vector<std::string> list(const std::string& directory) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir);
    if (!open) fail_file("list", directory, errno);
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(open.get());
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    if (errno != 0) fail_file("list", directory, errno);
    std::sort(names.begin(), names.end());
    return names;
  }

  void make_directories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) fail_file("make the directory", path, error.value());
    if (!is_directory(path)) fail_file("make the directory", path, EEXIST);
  }

  bool make_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) return true;
    if (errno != EEXIST) fail_file("make the directory", path, errno);
    return false;
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_file("rename '" + printable(from) + "' to", to, errno);
  }

  void remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0 && errno != ENOENT) fail_file("remove", path, errno);
  }

  void sync_directory(const std::string& path) override {
    const Descriptor directory(open_or_fail(path, O_RDONLY | O_DIRECTORY, "open the directory"));
    sync_or_fail(directory.get(), path);
  }
};

// A flock lock belongs to the open file description, so closing the descriptor releases it.
class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(int fd) : fd_(fd) {}

 private:
  Descriptor fd_;
};

std::atomic<FileSystem*> g_replacement{nullptr};

FileSystem& posix() {
  static PosixFileSystem* const instance = new PosixFileSystem;
  return *instance;
}

}  // namespace

std::unique_ptr<FileLock> FileSystem::lock_directory(const std::string& path) {
  Descriptor directory(open_or_fail(path, O_RDONLY | O_DIRECTORY, "open the directory"));
  const bool locked = uninterrupted([&] { return ::flock(directory.get(), LOCK_EX | LOCK_NB); }) == 0;
  if (!locked && errno == EWOULDBLOCK) return nullptr;  // other errors: no locks, e.g. some network file systems
  return std::make_unique<PosixFileLock>(directory.release());
}

FileSystem& file_system() {
  FileSystem* replacement = g_replacement.load();
  return replacement != nullptr ? *replacement : posix();
}

FileSystem* set_file_system(FileSystem* replacement) {
  FileSystem* old = g_replacement.exchange(replacement == &posix() ? nullptr : replacement);
  return old != nullptr ? old : &posix();
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

void write_file_atomically(const std::string& path, std::string_view bytes) {
  write_file_atomically(path, [&](OutputFile& file) { file.write(bytes.data(), bytes.size()); });
}

namespace detail {

constexpr std::string_view kTemporary = ".tmp-";
std::string temporary_name(const std::string& path) { return concat(path, kTemporary, ::getpid()); }
bool is_temporary(const std::string& name) {
  const size_t end = name.find_last_not_of("0123456789");
  return end != std::string::npos && end + 1 < name.size() &&
         std::string_view(name).substr(0, end + 1).ends_with(kTemporary);
}

void require_replaceable(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    fail("file", "'", printable(path), "' is a device, a pipe or a socket, which writing would replace. Name a file.");
}

}  // namespace detail
}  // namespace bitgrad
