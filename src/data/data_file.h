// Files that a data set refers to: opened, read plain or gzip, and what is said of their contents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// Resolves `path` relative to `root` (data.root; empty means the current folder); absolute paths are unchanged.
std::string data_path(const std::string& root, const std::string& path);

// Opens the file at `path`, the value of `key`. Throws Error(kData) that begins with `where` if the path is a folder
// (the message says that `expected` was expected), missing (MissingData; suggests the same name with or without .gz if
// that exists), or not a regular file.
std::unique_ptr<InputFile> open_data_file(std::string_view where, const DatasetSpec& spec, const std::string& key,
                                          const std::string& path, std::string_view expected);

// Warns of `count` of the `size` bytes of a text at `path` that no text has (is_control_byte), if there are any.
void warn_of_control_bytes(const std::string& path, int64_t count, int64_t size);

// On classes that no sample has, by whether a sample has each; empty if every class has one.
std::string absent_classes_text(const std::vector<bool>& seen);
// What follows "expected 0 .. N" on a label `largest` that is beyond the number of classes: what to write.
std::string more_classes_text(int64_t largest);
// Names of classes beside packed pictures: the lines of NAME.classes.txt of `bitgrad data pack`, next to the file of
// labels, NAME.labels.npy. Empty if that is another file, or there are no names.
std::vector<std::string> packed_class_names(const std::string& labels);

// Sequential reader of a file's content, plain or gzip (RFC 1952). Holds only one piece of the file in memory.
//
// The format is detected by the first bytes (1f 8b), not by the name. Consecutive gzip members form one content.
class ContentReader {
 public:
  // `file` must outlive the reader; `path` is for messages.
  ContentReader(std::string path, InputFile& file);
  ~ContentReader();
  ContentReader(const ContentReader&) = delete;
  ContentReader& operator=(const ContentReader&) = delete;

  bool compressed() const { return inflate_ != nullptr; }
  // Upper bound on the length of the content. Plain: the length of the file. gzip: the larger of 16 MiB and 100 times
  // the length of the file, but no more than deflate can reach (1032 times). Real data compress by a factor of 2 to 20;
  // a small file that expands to gigabytes is meant to exhaust memory.
  int64_t longest() const;
  // Bytes of content read so far.
  int64_t offset() const { return offset_; }
  // Reads `n` bytes, fewer only at the end of the content; skips them if `to` is nullptr. Throws Error(kData) for a
  // gzip stream that is truncated, damaged (including checksum and length), followed by other bytes, or longer than
  // longest().
  int64_t read(uint8_t* to, int64_t n);
  // The remaining content.
  std::string rest();

 private:
  struct Inflate;
  int64_t read_gzip(uint8_t* to, int64_t n);
  int64_t consumed() const;
  void refill();
  bool end_of_member();

  std::string path_;
  InputFile& file_;
  int64_t offset_ = 0;
  std::unique_ptr<Inflate> inflate_;
};

// The content of bytes that were read from `path`, plain or gzip.
std::string plain_text(const std::string& path, std::string bytes);

}  // namespace bitgrad::data
