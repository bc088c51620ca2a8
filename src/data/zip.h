// Members of a ZIP archive, stored or deflated, as written by numpy's savez. libzip reads the archive; limits are ours.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::data {

// Sequential source of bytes.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual int64_t size() const = 0;
  // Reads `n` bytes, fewer only at the end.
  virtual int64_t read(uint8_t* to, int64_t n) = 0;
};

// Reads a plain file, which must outlive the source.
std::unique_ptr<ByteSource> file_source(InputFile& file);

class ZipArchive {
 public:
  // `file` must outlive the archive. Throws Error(kData) that begins with `where` if it is not an archive or its
  // directory does not fit in it; `path` is for messages.
  ZipArchive(std::string_view where, std::string path, InputFile& file);
  // The members in the order of the directory.
  const std::vector<std::string>& names() const { return names_; }
  // The content of a member. The directory is untrusted: content that is longer or shorter than it says, or has a
  // different CRC-32, is Error(kData) when its end is read. A size that deflate cannot reach is Error(kData) at once.
  std::unique_ptr<ByteSource> open(size_t member) const;

 private:
  class Archive;
  class Member;
  std::shared_ptr<Archive> archive_;
  std::vector<std::string> names_;
};

}  // namespace bitgrad::data
