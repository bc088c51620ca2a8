// The one seam for all file calls: read, atomic write, list, remove. Tests put a failing implementation behind it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

// A file being written. Errors throw Error(kMemory) when the disk is full or fails (EIO), else Error(kData), and name
// the path and the reason.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(const void* data, size_t bytes) = 0;
  virtual void flush_to_disk() = 0;  // fsync
  virtual void close() = 0;
};

// A regular file being read. Errors throw Error(kData) and name the path.
class InputFile {
 public:
  virtual ~InputFile() = default;
  // Bytes, when it was opened. Files of /proc say 0.
  virtual int64_t size() const = 0;
  // Copies up to `bytes` bytes from `offset` (at least 0) on; fewer only at the end of the file.
  virtual size_t read_at(int64_t offset, void* to, size_t bytes) = 0;
};

// Held while it lives; gone with the process, however that ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// File calls. The default is POSIX.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Both write to regular files and devices; a pipe or socket in their place is Error(kData).
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;  // truncates
  virtual std::unique_ptr<OutputFile> open_append(const std::string& path) = 0;
  // The whole of a regular file, whatever its size. Error(kData) names the path, and what else than a file it is: nothing
  // waits for the other end of a pipe.
  virtual std::vector<uint8_t> read(const std::string& path) = 0;
  // The same, to be read in parts. A file system without its own reads the whole.
  virtual std::unique_ptr<InputFile> open_read(const std::string& path);
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  virtual std::vector<std::string> list(const std::string& directory) = 0;  // names, sorted
  virtual void make_directories(const std::string& path) = 0;
  // One directory below an existing one. False when the name is taken; of two processes only one gets true.
  virtual bool make_directory(const std::string& path) {
    if (exists(path)) return false;
    make_directories(path);
    return true;
  }
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& path) = 0;  // absent is fine
  virtual void sync_directory(const std::string& path) = 0;
  // Locks a directory against other processes and other locks of this one; nullptr when it is locked already. A file
  // system without locks grants them all.
  virtual std::unique_ptr<FileLock> lock_directory(const std::string& path);
};

FileSystem& file_system();
// Replaces the implementation and returns the old one (tests). nullptr: back to POSIX.
FileSystem* set_file_system(FileSystem* replacement);

// The whole file, if it has at most `max_bytes` bytes; a longer one is Error(kData) before it is read.
std::vector<uint8_t> read_file(const std::string& path, int64_t max_bytes);
// What standard input holds until its end (of a pipe, a terminal, a file). More than `max_bytes` bytes is Error(kData).
std::vector<uint8_t> read_standard_input(int64_t max_bytes);
// A file of these bytes.
std::unique_ptr<InputFile> memory_file(std::vector<uint8_t> bytes);

// Writes path + ".tmp-<pid>", fsyncs, renames over `path`, fsyncs the directory. On any error the old file stays whole
// and the temporary one is removed; only when the very last step fails (the directory's fsync) is the new file, whole,
// already in its place. `writer` gets the open file.
template <std::invocable<OutputFile&> Writer>
void write_file_atomically(const std::string& path, Writer&& writer);
void write_file_atomically(const std::string& path, std::string_view bytes);

namespace detail {
std::string temporary_name(const std::string& path);
bool is_temporary(const std::string& name);         // of a file that write_file_atomically, of any process, was writing
void require_replaceable(const std::string& path);  // a new file would not take the place of a device or a pipe
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
