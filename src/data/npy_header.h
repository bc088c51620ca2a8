// The header of an .npy file (NEP 1 and numpy.lib.format), versions 1.0 to 3.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/zip.h"

namespace bitgrad::data {

struct NpyHeader {
  char kind = 0;         // of elements: u, i, f (2, 4 or 8 bytes), b (bool), U (texts of 4 bytes a character), S (of 1)
  int64_t width = 0;     // bytes per element
  bool big = false;      // elements, or their characters, are big-endian
  bool fortran = false;  // the first axis is the fastest; only with two or more axes
  std::string descr;     // as written, e.g. <f4
  std::vector<int64_t> shape;
  int64_t bytes = 0;  // size of the header: offset of the elements
};

// Reads the header from the front of `from`. Throws Error(kData) that begins with `where` and `what` (the path, with
// the array's name) if the bytes are not an .npy header, for a version above 3, a damaged or overlong description,
// elements that are neither numbers, bool nor text (with what to save instead), a shape without elements, or one that
// does not match the bytes that follow.
NpyHeader read_npy_header(std::string_view where, const std::string& what, ByteSource& from);

int64_t elements_of(const NpyHeader& header);

}  // namespace bitgrad::data
