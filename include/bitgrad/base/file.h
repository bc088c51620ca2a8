// All file access goes through this interface: read, atomic write, list, remove. Tests replace the implementation.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

// Several files of one result: all of them are replaced, or none.

// While one exists, write_file_atomically in this thread leaves its files, complete and on disk, under their temporary
// names; commit() renames them in the order in which they were written. Without commit(), or if one of its calls fails,
// they are removed, and every old file is as it was. Not nested: an inner group leaves its files to the outer one.
class FileGroup {
 public:
  FileGroup();
  ~FileGroup();
  FileGroup(const FileGroup&) = delete;
  FileGroup& operator=(const FileGroup&) = delete;
  void commit();
  void add(const std::string& temporary, const std::string& path) { files_.emplace_back(temporary, path); }

 private:
  FileGroup* const outer_;
  std::vector<std::pair<std::string, std::string>> files_;  // temporary name, path
};

// What a file is, by its content: readers that are given a file of another kind name it and say what to do.

struct FileKind {
  std::string name = {};     // for messages, such as "a workbook of Excel (.xlsx)"
  std::string way_out = {};  // what makes a file of it that is read as data; a sentence without its end
  bool text = false;         // though it is a text, no table and no picture
};

inline constexpr std::string_view kFromTorch =
    "safetensors.torch.save_file(torch.load('FILE', weights_only=True), 'FILE.safetensors')";

// `begin`: the first bytes of a file, best 64 KiB or more of them. Knows archives, workbooks, tables in binary formats,
// pictures, models, pages and texts in UTF-16 or UTF-32. nullopt: a text in bytes, or nothing that is known.
std::optional<FileKind> known_file_kind(std::string_view begin);
// "it is NAME. WAY_OUT", or a word on zero bytes of an unknown kind; empty for a text.
std::string why_no_text(std::string_view begin);
// Whether no text has this byte: zero, and other control characters than blanks, line and page breaks and escape.
bool is_control_byte(char byte);
// Of a file that is to be read as a text, whatever it says: Error(kData) from `where` with the way out if it is of a
// known kind that is none.
void require_text(std::string_view where, const std::string& path, std::string_view begin);
// What a file that should hold a model holds instead, "NAME. WAY OUT."; empty: unknown. `begin` as above.
std::string why_no_model(std::string_view begin);
// Of a file; empty if there is none, too.
std::string why_no_model_file(const std::string& path);

// Standard streams of the process.

// Opens /dev/null for each of the descriptors 0 to 2 that is closed at startup (a daemon, cron). Otherwise the next
// files opened would get these numbers, and program output would be written into them. Call this first in main; the
// library itself never does. Throws Error(kMemory) if /dev/null cannot be opened.
void open_missing_streams();

}  // namespace bitgrad
