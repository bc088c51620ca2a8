#include "dtype/layouts/vnni64_codes.h"

#include <cstring>

namespace bitgrad::detail {

void vnni_load_codes(DType dtype, const VnniGeometry& g, const uint8_t* row, int64_t first, int64_t count,
                     int64_t padded, uint8_t* out) {
  unpack_row_raw(dtype, row, first, count, out);
  if (g.flip != 0)
    for (int64_t i = 0; i < count; ++i) out[i] ^= g.flip;
  std::memset(out + count, 0, static_cast<size_t>(padded - count));
}

void vnni_join_fields(const uint8_t* lines, int fields, int width, uint8_t* out) {
  for (int64_t i = 0; i < kVnniLine; i += 8) {
    uint64_t word = 0;
    for (int f = 0; f < fields; ++f) {
      uint64_t part;
      std::memcpy(&part, lines + f * kVnniLine + i, 8);
      word |= part << (f * width);
    }
    std::memcpy(out + i, &word, 8);
  }
}

}  // namespace bitgrad::detail
