// Shared by the packers of vnni64 and vnni64_t: geometry, and conversion of codes to bytes and back.
#pragma once

#include <cstring>

#include "bitgrad/base/cpu.h"
#include "dtype/layouts/layouts.h"

namespace bitgrad::detail {

inline constexpr int64_t kVnniLine = 64;  // bytes of one panel in one step

// Geometry of a matrix with `free` rows (columns of C) and `k` contracted indices.
struct VnniGeometry {
  int bits, fields, width;
  int64_t free, k, panels, steps;
  uint8_t flip;  // raw code ^ flip = u

  VnniGeometry(DType dtype, int64_t free_in, int64_t k_in)
      : bits(dtype.bits()),
        fields(vnni_fields(bits)),
        width(8 / fields),
        free(free_in),
        k(k_in),
        panels(panel_count(free)),
        steps(vnni_steps(bits, k)),
        flip(dtype.kind() == DTypeKind::kInt ? static_cast<uint8_t>(1u << (bits - 1)) : uint8_t{0}) {}
  int64_t codes_bytes() const { return panels * steps * kVnniLine; }
  int64_t bytes() const { return k == 0 ? 0 : codes_bytes() + panels * kVnniLine; }
  // Byte offset of a panel's line in a step.
  int64_t line(int64_t panel, int64_t step) const {
    const int64_t first = panel / kVnniPanels * kVnniPanels;
    return vnni_group_start(bits, first, k) + (step * vnni_group_panels(first, free) + panel - first) * kVnniLine;
  }
  int32_t* sums(void* out) const { return reinterpret_cast<int32_t*>(static_cast<char*>(out) + codes_bytes()); }
};

inline bool vnni_supports(DType dtype) { return dtype.is_code() && dtype.kind() != DTypeKind::kCodebook; }
inline constexpr char kVnniExpected[] = "a code dtype of kind int, uint or sign";

inline bool vnni_has_avx512() { return (cpu_isa() & isa::kAvx512) != 0; }

// u of `count` codes of a row, starting at code `first`; zero up to `padded`.
void vnni_load_codes(DType dtype, const VnniGeometry& g, const uint8_t* row, int64_t first, int64_t count,
                     int64_t padded, uint8_t* out);
// Merges `fields` consecutive lines of bytes into one line.
void vnni_join_fields(const uint8_t* lines, int fields, int width, uint8_t* out);

// Raw code of free index f at contracted index k.
inline uint8_t vnni_raw_at(const VnniGeometry& g, const uint8_t* in, int64_t f, int64_t k) {
  const int64_t unit = k / 4, panel = f / kPanelRows;
  const uint8_t byte = in[g.line(panel, unit / g.fields) + 4 * (f % kPanelRows) + k % 4];
  const int field = static_cast<int>(unit % g.fields);
  return static_cast<uint8_t>(((byte >> (field * g.width)) & ((1u << g.width) - 1)) ^ g.flip);
}

// Writes row r of a canonical matrix including padding; code(c) returns the raw codes.
template <typename Code>
void vnni_store_row(DType dtype, int64_t cols, uint8_t* row, int64_t stride, Code code) {
  constexpr int64_t kBlock = 512;  // in codes; a multiple of 8, so that blocks start on bytes
  uint8_t raw[kBlock];
  for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
    const int64_t count = std::min(kBlock, cols - c0);
    for (int64_t c = 0; c < count; ++c) raw[c] = code(c0 + c);
    pack_row_raw(dtype, raw, count, row + c0 / 8 * dtype.bits(), false);
  }
  const int64_t used = row_bytes_file(dtype, cols);
  const int64_t pad = writable_row_bytes(dtype, cols, stride) - used;
  if (pad > 0) std::memset(row + used, 0, static_cast<size_t>(pad));
}

// AVX-512 packers of byte codes into lines (vnni64_avx512.cpp).
//
// 16 rows (nullptr: zeros) of at most 64 codes -> lines of one panel, `line_step` bytes apart, starting at step 0 of
// the block. u = code ^ flip. The sum of u of row r is added to sums[r] as eight partial sums.
struct VnniRows {
  const uint8_t* rows[16];
  int64_t count;  // number of codes, 1 .. 64
  int fields;
  uint8_t flip;
  uint8_t* out;
  int64_t line_step;
  uint64_t (*sums)[8];
};
void vnni64_rows_avx512(const VnniRows& block);

// 4 * fields rows (nullptr: zeros) of at most 64 codes, the free indices of one group -> the group's 1 to 4 consecutive
// lines of one step. sums[i] += sum of u of free index i.
struct VnniColumns {
  const uint8_t* rows[32];
  int64_t count;
  int fields;
  uint8_t flip;
  uint8_t* out;
  uint32_t* sums;
};
void vnni64_columns_avx512(const VnniColumns& block);

}  // namespace bitgrad::detail
