// Members of a ZIP archive (PKWARE, APPNOTE.TXT 6.3), stored or deflated, with 64-bit sizes: what numpy's savez writes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::data {

// Bytes from front to back.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual int64_t size() const = 0;
  // Reads `n` bytes, fewer only at the end.
  virtual int64_t read(uint8_t* to, int64_t n) = 0;
};

// A file as it is, which must outlive the source.
std::unique_ptr<ByteSource> file_source(InputFile& file);

struct ZipMember {
  std::string name;
  int method = 0;  // 0 stored, 8 deflated
  bool encrypted = false;
  uint32_t crc = 0;
  int64_t packed = 0, size = 0;  // bytes in the archive, and of the content
  int64_t header = 0;            // offset of the local header
};

// The members that the central directory lists. Error(kData) that begins with `where` for a file that is no archive or
// whose directory does not fit into it; `path` is for messages.
std::vector<ZipMember> zip_members(std::string_view where, const std::string& path, InputFile& file);
// The content of a member; `file` must outlive it. Nothing that the directory says is trusted: more than `size` bytes,
// fewer, or another CRC-32 are Error(kData) where the end is read, and so is a size that deflate cannot reach.
std::unique_ptr<ByteSource> open_zip_member(std::string_view where, const std::string& path, InputFile& file,
                                            const ZipMember& member);

}  // namespace bitgrad::data
