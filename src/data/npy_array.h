// Files of numpy: members of archives; .npy headers, and arrays as numpy.load gives them: every number type, byte order
// and order of memory, and texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"

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

// The header of an .npy file (NEP 1 and numpy.lib.format), versions 1.0 to 3.0.
struct NpyHeader {
  char kind = 0;         // of elements: u, i, f (2, 4 or 8 bytes), b (bool), U (texts of 4 bytes a character), S (of 1)
  int64_t width = 0;     // bytes per element
  bool big = false;      // elements, or their characters, are big-endian
  bool fortran = false;  // the first axis is the fastest; only with two or more axes
  std::string descr;     // as written, e.g. <f4
  std::vector<int64_t> shape;
  int64_t bytes = 0;  // size of the header: offset of the elements

  int64_t count() const { return shape[0]; }
  std::vector<int64_t> inner() const { return {shape.begin() + 1, shape.end()}; }
  bool text() const { return kind == 'U' || kind == 'S'; }
};

// Reads the header from the front of `from`. Throws Error(kData) that begins with `where` and `what` (the path, with
// the array's name) if the bytes are not an .npy header, for a version above 3, a damaged or overlong description,
// elements that are neither numbers, bool nor text (with what to save instead), a shape without elements, or one that
// does not match the bytes that follow.
NpyHeader read_npy_header(std::string_view where, const std::string& what, ByteSource& from);

int64_t elements_of(const NpyHeader& header);

struct NpyArray {
  std::string where, what;  // of messages: the format; the path, with the array's name
  NpyHeader header;
  TrackedBytes raw;  // little-endian, row-major

  int64_t elements() const;
  bool whole() const { return header.kind == 'u' || header.kind == 'i' || header.kind == 'b'; }
  bool bytes() const { return header.kind == 'u' && header.width == 1; }
  // "at byte offset N": of element i in the file.
  std::string offset_of(int64_t i) const;
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_with(ErrorCode::kData, where, what, ": ", parts...);
  }
  // An element of whole numbers, or of floats that hold one. nullopt: it is none of int64.
  std::optional<int64_t> integer_at(int64_t i) const;
  double number_at(int64_t i) const;
  // All elements as fp32, each rounded once. Refuses those that are not finite in fp32.
  TrackedBytes floats(MemoryKind kind) const;
  // A text as UTF-8, without the NULs that pad it. Refuses code points that are none.
  std::string text_at(int64_t i) const;
};

// Reads the elements that follow `header`.
NpyArray read_npy_array(std::string_view where, const std::string& what, ByteSource& from, NpyHeader header);

// A warning on values that are likely not what was meant: numbers that are not 0 and become 0 in fp32; whole numbers
// 0 .. 255 of pictures, which only uint8 says to be pixels; different whole numbers of a feature that are one number in
// fp32, such as ids above 2^24.
void warn_of_values(const NpyArray& samples);

// ---- archives of arrays as numpy.savez writes them: stored members NAME.npy

struct NpzArray {
  std::string name = {};
  std::string descr = {};  // numpy type string: "<f4", "|i1", "|u1", "<i4"
  std::vector<int64_t> shape = {};
  std::vector<uint8_t> bytes = {};  // row-major, little-endian
};
// Returns the bytes of the archive. Throws Error for 4 GiB or more and for more than 65535 arrays, which would need
// ZIP64 records.
std::vector<uint8_t> npz_bytes(const std::vector<NpzArray>& arrays);

}  // namespace bitgrad::data
