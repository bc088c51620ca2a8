// vnni64 and vnni64_t: small integers as the products by dot-4 instructions read them (geometry in layout.h). Codes are
// expanded to bytes for a few rows and a block of k, put side by side in units of 4 k, and 1, 2, 4 or 8 units share a
// line of 64 bytes. Pad rows and pad columns are zero.
#include <cstring>

#include "bitgrad/base/cpu.h"
#include "dtype/layouts/layouts.h"
#include "dtype/layouts/vnni64_blocks.h"

namespace bitgrad {
namespace {

constexpr int64_t kLine = 64;  // bytes of one panel in one step

// Where everything of a matrix with `free` rows (columns of C) and `k` contracted indices lies.
struct Geometry {
  int bits, fields, width;
  int64_t free, k, panels, steps;
  uint8_t flip;  // raw code -> u

  Geometry(DType dtype, int64_t free_in, int64_t k_in)
      : bits(dtype.bits()),
        fields(vnni_fields(bits)),
        width(8 / fields),
        free(free_in),
        k(k_in),
        panels(panel_count(free)),
        steps(vnni_steps(bits, k)),
        flip(dtype.kind() == DTypeKind::kInt ? static_cast<uint8_t>(1u << (bits - 1)) : uint8_t{0}) {}
  int64_t codes_bytes() const { return panels * steps * kLine; }
  int64_t bytes() const { return k == 0 ? 0 : codes_bytes() + panels * kLine; }
  // Byte of the line of a panel in a step.
  int64_t line(int64_t panel, int64_t step) const {
    const int64_t first = panel / kVnniPanels * kVnniPanels;
    return vnni_group_start(bits, first, k) + (step * vnni_group_panels(first, free) + panel - first) * kLine;
  }
  int32_t* sums(void* out) const { return reinterpret_cast<int32_t*>(static_cast<char*>(out) + codes_bytes()); }
};

bool supports_codes(DType dtype) { return dtype.is_code() && dtype.kind() != DTypeKind::kCodebook; }
constexpr char kExpected[] = "a code dtype of kind int, uint or sign";

// u of `count` codes of a row from `first` on, zero up to `padded`.
void load_codes(DType dtype, const Geometry& g, const uint8_t* row, int64_t first, int64_t count, int64_t padded,
                uint8_t* out) {
  unpack_row_raw(dtype, row, first, count, out);
  if (g.flip != 0)
    for (int64_t i = 0; i < count; ++i) out[i] ^= g.flip;
  std::memset(out + count, 0, static_cast<size_t>(padded - count));
}

// Eight bytes at a time into four lanes of 16 bits; 2 * 128 of them fit.
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

// `fields` lines of bytes, one behind the other -> one line.
void join_fields(const uint8_t* lines, int fields, int width, uint8_t* out) {
  for (int64_t i = 0; i < kLine; i += 8) {
    uint64_t word = 0;
    for (int f = 0; f < fields; ++f) {
      uint64_t part;
      std::memcpy(&part, lines + f * kLine + i, 8);
      word |= part << (f * width);
    }
    std::memcpy(out + i, &word, 8);
  }
}

// A panel from rows [free, k].
void pack_panel(DType dtype, const Geometry& g, int64_t panel, const uint8_t* canonical, int64_t stride, uint8_t* out) {
  constexpr int64_t kBlock = 512;
  uint8_t rows[kPanelRows][kBlock], lines[8 * kLine];
  int32_t* const sums = g.sums(out) + panel * kPanelRows;
  std::memset(sums, 0, kLine);
  const int64_t codes = 4 * g.fields, r0 = panel * kPanelRows, count = std::min(kPanelRows, g.free - r0);
  std::memset(rows, 0, sizeof(rows));
  for (int64_t k0 = 0; k0 < g.k; k0 += kBlock) {
    const int64_t depth = std::min(kBlock, g.k - k0), steps = (depth + codes - 1) / codes;
    for (int64_t r = 0; r < count; ++r) {
      load_codes(dtype, g, canonical + (r0 + r) * stride, k0, depth, steps * codes, rows[r]);
      sums[r] = static_cast<int32_t>(static_cast<uint32_t>(sums[r]) + static_cast<uint32_t>(sum_codes(rows[r], depth)));
    }
    for (int64_t s = 0; s < steps; ++s) {
      uint8_t* const line = out + g.line(panel, k0 / codes + s);
      uint8_t* const to = g.fields == 1 ? line : lines;
      for (int f = 0; f < g.fields; ++f)
        for (int64_t r = 0; r < kPanelRows; ++r) std::memcpy(to + f * kLine + 4 * r, rows[r] + s * codes + 4 * f, 4);
      if (g.fields != 1) join_fields(lines, g.fields, g.width, line);
    }
  }
}

#if defined(__x86_64__)
bool has_avx512() { return (cpu_isa() & isa::kAvx512) != 0; }

// Codes of 8 bits are read where they lie, others by way of raw codes.
void pack_panel_avx512(DType dtype, const Geometry& g, int64_t panel, const uint8_t* canonical, int64_t stride,
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

constexpr int64_t kWide = 2048;  // free indices whose raw codes are made by one call
void pack_columns_avx512(DType dtype, const Geometry& g, int64_t f0, int64_t count, const uint8_t* canonical,
                         int64_t stride, uint8_t* out) {
  constexpr int64_t kCodes = kVnniPanels * kPanelRows;
  uint8_t raw[32][kWide];
  auto* const sums = reinterpret_cast<uint32_t*>(g.sums(out)) + f0;
  std::memset(sums, 0, static_cast<size_t>(panel_count(count) * kPanelRows) * 4);
  detail::VnniColumns block{};
  block.fields = g.fields;
  block.flip = g.flip;
  for (int64_t step = 0; step < g.steps; ++step) {
    const int64_t k0 = 4 * g.fields * step, rows = std::min<int64_t>(4 * g.fields, g.k - k0);
    for (int64_t i = 0; g.bits != 8 && i < rows; ++i)
      unpack_row_raw(dtype, canonical + (k0 + i) * stride, f0, count, raw[i]);
    for (int64_t f = 0; f < count; f += kCodes) {
      for (int64_t i = 0; i < 4 * g.fields; ++i) {
        block.rows[i] = i >= rows ? nullptr : g.bits == 8 ? canonical + (k0 + i) * stride + f0 + f : raw[i] + f;
      }
      block.count = std::min(kCodes, count - f);
      block.out = out + g.line((f0 + f) / kPanelRows, step);
      block.sums = sums + f;
      detail::vnni64_columns_avx512(block);
    }
  }
}
#endif

// Four rows of bytes -> units of 4 k of `count` free indices; sums of the rows are added to `sums`.
void put_units(const uint8_t* const (&rows)[4], int64_t count, uint8_t* units, uint32_t* sums) {
  const uint8_t *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
  for (int64_t i = 0; i < count; ++i) {
    units[4 * i] = r0[i];
    units[4 * i + 1] = r1[i];
    units[4 * i + 2] = r2[i];
    units[4 * i + 3] = r3[i];
  }
  for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<uint32_t>(r0[i] + r1[i] + r2[i] + r3[i]);
}

// Columns f0 .. f0+count (from a group on) of rows [k, free].
constexpr int64_t kBlockFree = 512;
void pack_columns(DType dtype, const Geometry& g, int64_t f0, int64_t count, const uint8_t* canonical, int64_t stride,
                  uint8_t* out) {
  const int64_t lanes = panel_count(count) * kPanelRows, first = f0 / kPanelRows;
  uint8_t rows[4][kBlockFree], units[8][4 * kBlockFree], lines[8 * kLine];
  uint32_t sums[kBlockFree] = {};
  for (int64_t step = 0; step < g.steps; ++step) {
    for (int f = 0; f < g.fields; ++f) {
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t k = 4 * (step * g.fields + f) + i;
        if (k < g.k) {
          load_codes(dtype, g, canonical + k * stride, f0, count, lanes, rows[i]);
        } else {
          std::memset(rows[i], 0, static_cast<size_t>(lanes));
        }
      }
      put_units({rows[0], rows[1], rows[2], rows[3]}, lanes, units[f], sums);
    }
    for (int64_t p = 0; p < lanes / kPanelRows; ++p) {
      uint8_t* const line = out + g.line(first + p, step);
      if (g.fields == 1) {
        std::memcpy(line, units[0] + p * kLine, kLine);
        continue;
      }
      for (int f = 0; f < g.fields; ++f) std::memcpy(lines + f * kLine, units[f] + p * kLine, kLine);
      join_fields(lines, g.fields, g.width, line);
    }
  }
  std::memcpy(g.sums(out) + f0, sums, static_cast<size_t>(lanes) * 4);
}

// Raw code of free index f at contracted index k.
uint8_t raw_at(const Geometry& g, const uint8_t* in, int64_t f, int64_t k) {
  const int64_t unit = k / 4, panel = f / kPanelRows;
  const uint8_t byte = in[g.line(panel, unit / g.fields) + 4 * (f % kPanelRows) + k % 4];
  const int field = static_cast<int>(unit % g.fields);
  return static_cast<uint8_t>(((byte >> (field * g.width)) & ((1u << g.width) - 1)) ^ g.flip);
}

// Writes row r of a canonical matrix, code(c) its raw codes, with its pad.
template <typename Code>
void store_row(DType dtype, int64_t cols, uint8_t* row, int64_t stride, Code code) {
  constexpr int64_t kBlock = 512;  // of codes, so that blocks begin on bytes
  uint8_t raw[kBlock];
  for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
    const int64_t count = std::min(kBlock, cols - c0);
    for (int64_t c = 0; c < count; ++c) raw[c] = code(c0 + c);
    pack_row_raw(dtype, raw, count, row + c0 / 8 * dtype.bits(), false);
  }
  const int64_t used = row_bytes_file(dtype, cols);
  std::memset(row + used, 0, static_cast<size_t>(detail::writable_row_bytes(dtype, cols, stride) - used));
}

}  // namespace

namespace vnni64_layout {

constexpr char kWhere[] = "layout vnni64";

bool supports(DType dtype) { return supports_codes(dtype); }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, kExpected);
  return Geometry(dtype, rows, cols).bytes();
}

void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const Geometry g(dtype, rows, cols);
  if (g.bytes() == 0) return;
  auto* pack_one = &pack_panel;
#if defined(__x86_64__)
  if (has_avx512()) pack_one = &pack_panel_avx512;
#endif
  for (int64_t p = 0; p < g.panels; ++p)
    pack_one(dtype, g, p, static_cast<const uint8_t*>(canonical), stride, static_cast<uint8_t*>(out));
}

void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const Geometry g(dtype, rows, cols);
  const auto* from = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < rows; ++r) {
    store_row(dtype, cols, static_cast<uint8_t*>(canonical) + r * stride, stride,
              [&](int64_t c) { return raw_at(g, from, r, c); });
  }
}

}  // namespace vnni64_layout

namespace vnni64_t_layout {

constexpr char kWhere[] = "layout vnni64_t";

bool supports(DType dtype) { return supports_codes(dtype); }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, kExpected);
  return Geometry(dtype, cols, rows).bytes();
}

void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const Geometry g(dtype, cols, rows);
  if (g.bytes() == 0) return;
  auto* pack_some = &pack_columns;
  int64_t piece = kBlockFree;
#if defined(__x86_64__)
  if (has_avx512()) {
    pack_some = &pack_columns_avx512;
    piece = kWide;
  }
#endif
  for (int64_t f = 0; f < cols; f += piece) {
    pack_some(dtype, g, f, std::min(piece, cols - f), static_cast<const uint8_t*>(canonical), stride,
              static_cast<uint8_t*>(out));
  }
}

void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, kExpected);
  const Geometry g(dtype, cols, rows);
  const auto* from = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < rows; ++r) {
    store_row(dtype, cols, static_cast<uint8_t*>(canonical) + r * stride, stride,
              [&](int64_t c) { return raw_at(g, from, c, r); });
  }
}

}  // namespace vnni64_t_layout
}  // namespace bitgrad
