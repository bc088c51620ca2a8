// vnni64: small integers in the order of dot-4 instructions (geometry in layout.h), packed panel by panel. Codes are
// expanded to bytes for 16 rows and a block of k and interleaved in units of 4 k; 1, 2, 4 or 8 units share a line of 64
// bytes. Padding rows and columns are zero.
#include <cstring>

#include "dtype/layouts/vnni64_codes.h"

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

namespace bitgrad {
namespace {

using detail::kVnniLine, detail::VnniGeometry;

// Adds eight bytes at a time into four 16-bit lanes, which can hold 2 * 128 of them.
int32_t sum_codes(const uint8_t* u, int64_t count) {
  constexpr uint64_t kBytes = 0x00FF00FF00FF00FFu, kWords = 0x0000FFFF0000FFFFu;
  uint64_t sum = 0;
  int64_t i = 0;
  while (i + 8 <= count) {
    uint64_t lanes = 0;
    for (const int64_t end = std::min(count - 7, i + 8 * 128); i < end; i += 8) {
      uint64_t word;
      std::memcpy(&word, u + i, 8);
      lanes += (word & kBytes) + ((word >> 8) & kBytes);
    }
    lanes = (lanes & kWords) + ((lanes >> 16) & kWords);
    sum += (lanes & 0xFFFFFFFFu) + (lanes >> 32);
  }
  for (; i < count; ++i) sum += u[i];
  return static_cast<int32_t>(static_cast<uint32_t>(sum));
}

// Packs one panel from canonical rows [free, k].
void pack_panel(DType dtype, const VnniGeometry& g, int64_t panel, const uint8_t* canonical, int64_t stride,
                uint8_t* out) {
  constexpr int64_t kBlock = 512;
  uint8_t rows[kPanelRows][kBlock], lines[8 * kVnniLine];
  int32_t* const sums = g.sums(out) + panel * kPanelRows;
  std::memset(sums, 0, kVnniLine);
  const int64_t codes = 4 * g.fields, r0 = panel * kPanelRows, count = std::min(kPanelRows, g.free - r0);
  std::memset(rows, 0, sizeof(rows));
  for (int64_t k0 = 0; k0 < g.k; k0 += kBlock) {
    const int64_t depth = std::min(kBlock, g.k - k0), steps = (depth + codes - 1) / codes;
    for (int64_t r = 0; r < count; ++r) {
      detail::vnni_load_codes(dtype, g, canonical + (r0 + r) * stride, k0, depth, steps * codes, rows[r]);
      sums[r] = static_cast<int32_t>(static_cast<uint32_t>(sums[r]) + static_cast<uint32_t>(sum_codes(rows[r], depth)));
    }
    for (int64_t s = 0; s < steps; ++s) {
      uint8_t* const line = out + g.line(panel, k0 / codes + s);
      uint8_t* const to = g.fields == 1 ? line : lines;
      for (int f = 0; f < g.fields; ++f)
        for (int64_t r = 0; r < kPanelRows; ++r)
          std::memcpy(to + f * kVnniLine + 4 * r, rows[r] + s * codes + 4 * f, 4);
      if (g.fields != 1) detail::vnni_join_fields(lines, g.fields, g.width, line);
    }
  }
}

// The same with AVX-512. 8-bit codes are read in place, others are expanded to raw codes first.
void pack_panel_avx512(DType dtype, const VnniGeometry& g, int64_t panel, const uint8_t* canonical, int64_t stride,
                       uint8_t* out) {
  constexpr int64_t kBlock = 512, kCodes = 64;
  uint8_t raw[kPanelRows][kBlock];
  const int64_t codes = 4 * g.fields, r0 = panel * kPanelRows, count = std::min(kPanelRows, g.free - r0);
  detail::VnniRows block{};
  block.fields = g.fields;
  block.flip = g.flip;
  block.line_step = g.line(panel, 1) - g.line(panel, 0);
  uint64_t parts[kPanelRows][8] = {};
  block.sums = parts;
  for (int64_t k0 = 0; k0 < g.k; k0 += kBlock) {
    const int64_t depth = std::min(kBlock, g.k - k0);
    for (int64_t r = 0; g.bits != 8 && r < count; ++r)
      unpack_row_raw(dtype, canonical + (r0 + r) * stride, k0, depth, raw[r]);
    for (int64_t k = 0; k < depth; k += kCodes) {
      for (int64_t r = 0; r < count; ++r) {
        const uint8_t* row = canonical + (r0 + r) * stride;
        block.rows[r] = g.bits == 8 ? row + k0 + k : raw[r] + k;
      }
      block.count = std::min(kCodes, depth - k);
      block.out = out + g.line(panel, (k0 + k) / codes);
      detail::vnni64_rows_avx512(block);
    }
  }
  for (int64_t r = 0; r < kPanelRows; ++r) {
    uint64_t sum = 0;
    for (const uint64_t part : parts[r]) sum += part;
    g.sums(out)[r0 + r] = static_cast<int32_t>(static_cast<uint32_t>(sum));
  }
}

// Raw codes of all rows of a panel from line `line` on, `steps` lines.
template <int fields>
void open_lines(const VnniGeometry& g, const uint8_t* line, int64_t line_step, int64_t steps, uint8_t* raw,
                int64_t row_step) {
  constexpr uint32_t kBytes = 0x01010101u;
  constexpr int kWidth = 8 / fields;
  constexpr uint32_t kMask = kBytes * ((1u << kWidth) - 1);
  const uint32_t flip = kBytes * g.flip;
  for (int64_t s = 0; s < steps; ++s, line += line_step, raw += 4 * fields) {
    for (int64_t r = 0; r < kPanelRows; ++r) {
      uint32_t units;
      std::memcpy(&units, line + 4 * r, 4);
      for (int f = 0; f < fields; ++f) {
        const uint32_t unit = ((units >> (f * kWidth)) & kMask) ^ flip;
        std::memcpy(raw + r * row_step + 4 * f, &unit, 4);
      }
    }
  }
}

// Restores rows [begin, end) of one panel.
void unpack_panel(DType dtype, const VnniGeometry& g, const uint8_t* in, int64_t begin, int64_t end, uint8_t* canonical,
                  int64_t stride) {
  constexpr int64_t kBlock = 512;  // in codes; a multiple of 8, so that blocks start on bytes
  uint8_t raw[kPanelRows][kBlock];
  const int64_t panel = begin / kPanelRows, codes = 4 * g.fields, line_step = g.line(panel, 1) - g.line(panel, 0);
  auto* const open = g.fields == 1   ? &open_lines<1>
                     : g.fields == 2 ? &open_lines<2>
                     : g.fields == 4 ? &open_lines<4>
                                     : &open_lines<8>;
  for (int64_t k0 = 0; k0 < g.k; k0 += kBlock) {
    const int64_t depth = std::min(kBlock, g.k - k0);
    open(g, in + g.line(panel, k0 / codes), line_step, (depth + codes - 1) / codes, raw[0], kBlock);
    for (int64_t r = begin; r < end; ++r)
      pack_row_raw(dtype, raw[r - panel * kPanelRows], depth, canonical + (r - begin) * stride + k0 / 8 * g.bits,
                   false);
  }
  const int64_t used = row_bytes_file(dtype, g.k), pad = detail::writable_row_bytes(dtype, g.k, stride) - used;
  for (int64_t r = begin; pad > 0 && r < end; ++r)
    std::memset(canonical + (r - begin) * stride + used, 0, static_cast<size_t>(pad));
}

}  // namespace

namespace vnni64_layout {

constexpr char kWhere[] = "layout vnni64";

bool supports(DType dtype) { return detail::vnni_supports(dtype); }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, detail::kVnniExpected);
  return VnniGeometry(dtype, rows, cols).bytes();
}

void pack_rows(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out, int64_t begin,
               int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, detail::kVnniExpected);
  const VnniGeometry g(dtype, rows, cols);
  if (g.bytes() == 0) return;
  auto* pack_one = &pack_panel;
  if (detail::vnni_has_avx512()) pack_one = &pack_panel_avx512;
  for (int64_t p = begin / kPanelRows; p < panel_count(end); ++p)
    pack_one(dtype, g, p, static_cast<const uint8_t*>(canonical), stride, static_cast<uint8_t*>(out));
}

void unpack_rows(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride,
                 int64_t begin, int64_t end) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, detail::kVnniExpected);
  const VnniGeometry g(dtype, rows, cols);
  for (int64_t r = begin; r < end;) {
    const int64_t next = std::min(end, (r / kPanelRows + 1) * kPanelRows);
    unpack_panel(dtype, g, static_cast<const uint8_t*>(in), r, next,
                 static_cast<uint8_t*>(canonical) + (r - begin) * stride, stride);
    r = next;
  }
}

}  // namespace vnni64_layout
}  // namespace bitgrad
