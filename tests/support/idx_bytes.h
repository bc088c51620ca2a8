// Builds idx files and gzip streams byte by byte.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <vector>

#include "support/catch.h"

namespace bitgrad::test {

inline std::vector<uint8_t> idx_header(const std::vector<uint32_t>& dims, uint8_t type = 0x08) {
  std::vector<uint8_t> out{0, 0, type, static_cast<uint8_t>(dims.size())};
  for (const uint32_t extent : dims)
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(extent >> shift));
  return out;
}

// Compresses to one stream. level: 1 (fast) to 9.
inline std::vector<uint8_t> gzip(const std::vector<uint8_t>& content, int level = 9) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::vector<uint8_t> out(deflateBound(&z, content.size()) + 64);
  z.next_in = const_cast<Bytef*>(content.data());
  z.avail_in = static_cast<uInt>(content.size());
  z.next_out = out.data();
  z.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace bitgrad::test
