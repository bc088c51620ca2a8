// The content of a file, plain or gzip (RFC 1952), read from front to back; of the file itself no more than a piece is
// in memory.
//
// Which of the two it is follows from the first bytes (1f 8b), not from the name. Several gzip members in a row are one
// content.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::data {

class ContentReader {
 public:
  // `file` must outlive the reader; `path` is for messages.
  ContentReader(std::string path, InputFile& file);
  ~ContentReader();
  ContentReader(const ContentReader&) = delete;
  ContentReader& operator=(const ContentReader&) = delete;

  bool compressed() const { return inflate_ != nullptr; }
  // The content is not longer than this: the file's length; of gzip what deflate can reach from it (1032 times), and at
  // most 16 MiB or 100 times the file's length, the larger of them. Data compress by a factor of 2 to 20; a small file
  // that swells to gigabytes is made to take memory.
  int64_t longest() const;
  // Content bytes read so far.
  int64_t offset() const { return offset_; }
  // Reads `n` bytes, fewer only at the end of the content; `to` nullptr skips them. Error(kData) for a gzip stream that
  // is cut off, damaged (checksum and length too), followed by other bytes, or longer than longest().
  int64_t read(uint8_t* to, int64_t n);
  // What is left of the content.
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

}  // namespace bitgrad::data
