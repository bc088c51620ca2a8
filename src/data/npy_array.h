// Arrays of .npy files as numpy.load gives them: every number type, byte order and order of memory, and texts.
#pragma once

#include <optional>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/data/dataset.h"
#include "data/npy_header.h"

namespace bitgrad::data {

struct NpyArray {
  std::string where, what;  // of messages: the format; the path, with the array's name
  NpyHeader header;
  TrackedBytes raw;  // little-endian, row-major

  int64_t elements() const;
  int64_t count() const { return header.shape[0]; }
  std::vector<int64_t> inner() const { return {header.shape.begin() + 1, header.shape.end()}; }
  bool whole() const { return header.kind == 'u' || header.kind == 'i' || header.kind == 'b'; }
  bool bytes() const { return header.kind == 'u' && header.width == 1; }
  bool text() const { return header.kind == 'U' || header.kind == 'S'; }
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

}  // namespace bitgrad::data
