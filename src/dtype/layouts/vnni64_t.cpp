// vnni64_t: vnni64 of the transpose (vnni64.cpp), built step by step from a matrix whose rows are contracted indices.
#include <cstring>

#include "bitgrad/base/parallel.h"
#include "dtype/layouts/vnni64_codes.h"

namespace bitgrad {
namespace {

using detail::kVnniLine, detail::VnniGeometry;

constexpr int64_t kWide = 1024;  // free indices expanded to raw codes per call
void pack_columns_avx512(DType dtype, const VnniGeometry& g, int64_t f0, int64_t count, const uint8_t* canonical,
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

// Four rows of bytes -> units of 4 k for `count` free indices; adds the column sums to `sums`.
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

// Packs columns f0 .. f0 + count - 1, f0 at the start of a group, of rows [k, free].
constexpr int64_t kBlockFree = 512;
void pack_columns(DType dtype, const VnniGeometry& g, int64_t f0, int64_t count, const uint8_t* canonical,
                  int64_t stride, uint8_t* out) {
  const int64_t lanes = panel_count(count) * kPanelRows, first = f0 / kPanelRows;
  uint8_t rows[4][kBlockFree], units[8][4 * kBlockFree], lines[8 * kVnniLine];
  uint32_t sums[kBlockFree] = {};
  for (int64_t step = 0; step < g.steps; ++step) {
    for (int f = 0; f < g.fields; ++f) {
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t k = 4 * (step * g.fields + f) + i;
        if (k < g.k) {
          detail::vnni_load_codes(dtype, g, canonical + k * stride, f0, count, lanes, rows[i]);
        } else {
          std::memset(rows[i], 0, static_cast<size_t>(lanes));
        }
      }
      put_units({rows[0], rows[1], rows[2], rows[3]}, lanes, units[f], sums);
    }
    for (int64_t p = 0; p < lanes / kPanelRows; ++p) {
      uint8_t* const line = out + g.line(first + p, step);
      if (g.fields == 1) {
        std::memcpy(line, units[0] + p * kVnniLine, kVnniLine);
        continue;
      }
      for (int f = 0; f < g.fields; ++f) std::memcpy(lines + f * kVnniLine, units[f] + p * kVnniLine, kVnniLine);
      detail::vnni_join_fields(lines, g.fields, g.width, line);
    }
  }
  std::memcpy(g.sums(out) + f0, sums, static_cast<size_t>(lanes) * 4);
}

}  // namespace

namespace vnni64_t_layout {

constexpr char kWhere[] = "layout vnni64_t";

bool supports(DType dtype) { return detail::vnni_supports(dtype); }

int64_t bytes(DType dtype, int64_t rows, int64_t cols) {
  detail::check_matrix(dtype, rows, cols, supports(dtype), kWhere, detail::kVnniExpected);
  return VnniGeometry(dtype, cols, rows).bytes();
}

void pack(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, detail::kVnniExpected);
  const VnniGeometry g(dtype, cols, rows);
  if (g.bytes() == 0) return;
  auto* pack_some = &pack_columns;
  int64_t piece = kBlockFree;
  if (detail::vnni_has_avx512()) {
    pack_some = &pack_columns_avx512;
    piece = kWide;
  }
  parallel_ranges(cols, piece, [&](int64_t begin, int64_t end) {
    pack_some(dtype, g, begin, end - begin, static_cast<const uint8_t*>(canonical), stride, static_cast<uint8_t*>(out));
  });
}

void unpack(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride) {
  detail::check_rows(dtype, rows, cols, stride, supports(dtype), kWhere, detail::kVnniExpected);
  const VnniGeometry g(dtype, cols, rows);
  const auto* from = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < rows; ++r) {
    detail::vnni_store_row(dtype, cols, static_cast<uint8_t*>(canonical) + r * stride, stride,
                           [&](int64_t c) { return detail::vnni_raw_at(g, from, c, r); });
  }
}

}  // namespace vnni64_t_layout
}  // namespace bitgrad
