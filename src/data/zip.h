// Members of a ZIP archive (PKWARE, APPNOTE.TXT 6.3), stored or deflated, with 64-bit sizes, as written by numpy's
// savez.
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

struct ZipMember {
  std::string name;
  int method = 0;  // 0: stored, 8: deflated
  bool encrypted = false;
  uint32_t crc = 0;
  int64_t packed = 0, size = 0;  // size in the archive, and of the content
  int64_t header = 0;            // offset of the local header
};

// The members listed in the central directory. Throws Error(kData) that begins with `where` if the file is not an
// archive or its directory does not fit in it; `path` is for messages.
std::vector<ZipMember> zip_members(std::string_view where, const std::string& path, InputFile& file);
// The content of a member; `file` must outlive it. The directory is untrusted: content that is longer or shorter than
// `size`, or has a different CRC-32, is Error(kData) when its end is read. A size that deflate cannot reach is
// Error(kData) at once.
std::unique_ptr<ByteSource> open_zip_member(std::string_view where, const std::string& path, InputFile& file,
                                            const ZipMember& member);

}  // namespace bitgrad::data
