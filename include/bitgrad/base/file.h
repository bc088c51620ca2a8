// All file access goes through this interface: read, atomic write, list, remove. Tests replace the implementation.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

// A file open for writing. Throws Error(kMemory) if the disk is full or failing (EIO), otherwise Error(kData); the
// message names the path and the reason.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(const void* data, size_t bytes) = 0;
  virtual void flush_to_disk() = 0;  // fsync
  virtual void close() = 0;
};

// A regular file open for reading. Throws Error(kData) naming the path.
class InputFile {
 public:
  virtual ~InputFile() = default;
  // Size in bytes when the file was opened. Files in /proc report 0.
  virtual int64_t size() const = 0;
  // Copies up to `bytes` bytes, starting at `offset` >= 0. Returns the number copied, less than `bytes` only at end of
  // file.
  virtual size_t read_at(int64_t offset, void* to, size_t bytes) = 0;
};

// Held for the lifetime of the object; released when the process ends, however it ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// File operations. The default implementation uses POSIX.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // create and open_append accept regular files and devices; throw Error(kData) for a pipe or socket, and open_append
  // for a link to a file.
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;  // truncates
  virtual std::unique_ptr<OutputFile> open_append(const std::string& path) = 0;
  // Reads a whole regular file of any size. Throws Error(kData) naming the path and, if it is not a regular file, what
  // it is; never blocks waiting for the other end of a pipe.
  virtual std::vector<uint8_t> read(const std::string& path) = 0;
  // Opens a file for reading in parts. The default implementation reads the whole file into memory.
  virtual std::unique_ptr<InputFile> open_read(const std::string& path);
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  virtual std::vector<std::string> list(const std::string& directory) = 0;  // file names, sorted
  virtual void make_directories(const std::string& path) = 0;
  // Creates one directory inside an existing one. Returns false if the name is taken; if several processes race,
  // exactly one gets true.
  virtual bool make_directory(const std::string& path) {
    if (exists(path)) return false;
    make_directories(path);
    return true;
  }
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& path) = 0;  // no error if absent
  virtual void sync_directory(const std::string& path) = 0;
  // Locks a directory against other processes and against other locks of this process. Returns nullptr if it is already
  // locked. The default implementation, for file systems without locks, always succeeds.
  virtual std::unique_ptr<FileLock> lock_directory(const std::string& path);
};

FileSystem& file_system();
// Replaces the implementation and returns the previous one (for tests). nullptr restores POSIX.
FileSystem* set_file_system(FileSystem* replacement);

// Reads a whole file. Throws Error(kData), before reading, if it is larger than `max_bytes` bytes.
std::vector<uint8_t> read_file(const std::string& path, int64_t max_bytes);
// Reads standard input (a pipe, a terminal, a file) to its end. Throws Error(kData) beyond `max_bytes` bytes.
std::vector<uint8_t> read_standard_input(int64_t max_bytes);
// An InputFile over bytes in memory.
std::unique_ptr<InputFile> memory_file(std::vector<uint8_t> bytes);

// Writes path + ".tmp-<pid>", fsyncs it, renames it over `path` and fsyncs the directory. `writer` receives the open
// file. On any error the old file stays intact and the temporary file is removed. Only if the final step (fsync of the
// directory) fails is the complete new file already in place.
template <std::invocable<OutputFile&> Writer>
void write_file_atomically(const std::string& path, Writer&& writer);
void write_file_atomically(const std::string& path, std::string_view bytes);

namespace detail {
std::string temporary_name(const std::string& path);
bool is_temporary(const std::string& name);         // left by write_file_atomically in any process
void require_replaceable(const std::string& path);  // throws if `path` is a device or a pipe
void commit_file(const std::string& temporary, const std::string& path);
}  // namespace detail

template <std::invocable<OutputFile&> Writer>
void write_file_atomically(const std::string& path, Writer&& writer) {
  detail::require_replaceable(path);
  const std::string temporary = detail::temporary_name(path);
  try {
    std::unique_ptr<OutputFile> file = file_system().create(temporary);
    writer(*file);
    file->flush_to_disk();
    file->close();
    detail::commit_file(temporary, path);
  } catch (...) {
    try {
      file_system().remove(temporary);
    } catch (...) {
    }
    throw;
  }
}

}  // namespace bitgrad
