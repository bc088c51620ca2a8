// Builds numpy files byte by byte: .npy of every version, and ZIP archives of them.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"

namespace bitgrad::test {

using NpyBytes = std::vector<uint8_t>;

inline void put(NpyBytes& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(i < 8 ? static_cast<uint8_t>(value >> (8 * i)) : uint8_t{0});
}
inline void put(NpyBytes& out, const std::string& text) { out.insert(out.end(), text.begin(), text.end()); }

// A file with this header text, padded as numpy does.
inline NpyBytes npy_raw(const std::string& description, const NpyBytes& elements, int version = 1) {
  NpyBytes out;
  put(out, std::string("\x93NUMPY", 6));
  put(out, static_cast<uint64_t>(version), 2);
  std::string text = description;
  const size_t fixed = version == 1 ? 10 : 12;
  while ((fixed + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  put(out, text.size(), version == 1 ? 2 : 4);
  put(out, text);
  out.insert(out.end(), elements.begin(), elements.end());
  return out;
}
inline NpyBytes npy(const std::string& descr, const std::string& shape, const NpyBytes& elements, int version = 1) {
  return npy_raw("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", elements, version);
}
template <typename T>
NpyBytes bytes_of(const std::vector<T>& values) {
  NpyBytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

struct ZipOptions {
  bool deflated = false, wide = false;  // wide: sizes in 64-bit records
  int method = -1;                      // written instead of the true method
  uint32_t flags = 0, crc_off = 0;
  int64_t size_off = 0;
};
// An archive of `members` (name and content).
inline NpyBytes zip(const std::vector<std::pair<std::string, NpyBytes>>& members, const ZipOptions& o = {}) {
  NpyBytes out, directory;
  for (const auto& [name, content] : members) {
    NpyBytes packed = content;
    if (o.deflated) {
      z_stream z{};
      REQUIRE(deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
      packed.resize(deflateBound(&z, content.size()) + 64);
      z.next_in = const_cast<Bytef*>(content.data());
      z.avail_in = static_cast<uInt>(content.size());
      z.next_out = packed.data();
      z.avail_out = static_cast<uInt>(packed.size());
      REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
      packed.resize(z.total_out);
      deflateEnd(&z);
    }
    const auto crc = static_cast<uint32_t>(crc32(0, content.data(), static_cast<uInt>(content.size()))) + o.crc_off;
    const uint64_t size = static_cast<uint64_t>(static_cast<int64_t>(content.size()) + o.size_off), header = out.size();
    const auto method = static_cast<uint64_t>(o.method >= 0 ? o.method : o.deflated ? 8 : 0);
    put(out, 0x04034b50, 4);
    put(out, 45, 2);
    put(out, o.flags, 2);
    put(out, method, 2);
    put(out, 0, 4);
    put(out, crc, 4);
    put(out, 0xFFFFFFFF, 4);  // as numpy writes it: the sizes of the local header are in an extra field
    put(out, 0xFFFFFFFF, 4);
    put(out, name.size(), 2);
    put(out, 20, 2);
    put(out, name);
    put(out, 1, 2);
    put(out, 16, 2);
    put(out, size, 8);
    put(out, packed.size(), 8);
    out.insert(out.end(), packed.begin(), packed.end());
    put(directory, 0x02014b50, 4);
    put(directory, 45, 4);
    put(directory, o.flags, 2);
    put(directory, method, 2);
    put(directory, 0, 4);
    put(directory, crc, 4);
    put(directory, o.wide ? 0xFFFFFFFF : packed.size(), 4);
    put(directory, o.wide ? 0xFFFFFFFF : size, 4);
    put(directory, name.size(), 2);
    put(directory, o.wide ? 4 + 28 : 0, 2);
    put(directory, 0, 2 + 2 + 2 + 4);
    put(directory, o.wide ? 0xFFFFFFFF : header, 4);
    put(directory, name);
    if (!o.wide) continue;
    put(directory, 0x7777, 2);  // an extra field of another program
    put(directory, 0, 2);
    put(directory, 1, 2);
    put(directory, 24, 2);
    put(directory, size, 8);
    put(directory, packed.size(), 8);
    put(directory, header, 8);
  }
  const uint64_t at = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  if (o.wide) {
    const uint64_t end = out.size();
    put(out, 0x06064b50, 4);
    put(out, 44, 8);
    put(out, 45, 4);
    put(out, 0, 8);
    put(out, members.size(), 8);
    put(out, members.size(), 8);
    put(out, directory.size(), 8);
    put(out, at, 8);
    put(out, 0x07064b50, 4);
    put(out, 0, 4);
    put(out, end, 8);
    put(out, 1, 4);
  }
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, o.wide ? 0xFFFF : members.size(), 2);
  put(out, o.wide ? 0xFFFF : members.size(), 2);
  put(out, o.wide ? 0xFFFFFFFF : directory.size(), 4);
  put(out, o.wide ? 0xFFFFFFFF : at, 4);
  put(out, 0, 2);
  return out;
}

}  // namespace bitgrad::test
