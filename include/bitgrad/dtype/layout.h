// Layouts as data: how the codes of a [rows, cols] matrix are stored. docs/architecture.md, "Layout".
//
// Canonical is what files hold and the reference reads. All others are derived: made from canonical by `pack`, undone
// by `unpack`.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad {

struct LayoutInfo {
  std::string_view name;
  // Whether codes of this dtype can have this layout.
  bool (*supports)(DType dtype);
  // Bytes of the whole matrix, a multiple of 64.
  int64_t (*bytes)(DType dtype, int64_t rows, int64_t cols);
  // Canonical (row stride `stride` bytes) -> this layout, and back. Output is written whole, pad included.
  void (*pack)(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out);
  void (*unpack)(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride);
};

// Layouts that can be packed in blocks of rows: one line each in src/dtype/layouts/rows.inc. The others are packed
// whole.
struct RowPacking {
  int64_t unit;  // blocks begin at multiples of this many rows
  // Rows [begin, end) of canonical codes go where LayoutInfo::pack puts them; a block that ends at `rows` writes what
  // is behind the last row too. All rows packed so, in any order, give the bytes of pack.
  void (*pack)(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out, int64_t begin,
               int64_t end);
};

class Layout {
 public:
  constexpr Layout() = default;  // canonical
  constexpr explicit Layout(uint8_t id) : id_(id) {}
  constexpr uint8_t id() const { return id_; }
  const LayoutInfo& info() const;
  const RowPacking* rows() const;  // nullptr: packed whole
  std::string_view name() const { return info().name; }
  friend constexpr bool operator==(Layout, Layout) = default;

 private:
  uint8_t id_ = 0;
};
std::ostream& operator<<(std::ostream& out, Layout layout);

namespace layouts {
namespace detail {
enum : uint8_t {
#define BITGRAD_LAYOUT(symbol, ...) k_##symbol,
#include "bitgrad/dtype/layouts.inc"
#undef BITGRAD_LAYOUT
};
}  // namespace detail
#define BITGRAD_LAYOUT(symbol, ...) inline constexpr Layout symbol{detail::k_##symbol};
#include "bitgrad/dtype/layouts.inc"
#undef BITGRAD_LAYOUT
}  // namespace layouts

std::vector<Layout> all_layouts();
// A multiple of the unit of every RowPacking: blocks of rows that begin at multiples of it can be packed anyhow.
inline constexpr int64_t kRowBlock = 16;

// Geometry that kernels share with the layouts.
// planes: [plane][row][64-bit word], plane p = bit p of the code.
inline int64_t plane_words(int64_t cols) { return (cols + 63) / 64; }
// panels16: [plane][row panel of 16][32-bit word of k][16 rows]: the columns of a product are across lanes.
inline constexpr int64_t kPanelRows = 16;
inline int64_t panel_words(int64_t cols) { return (cols + 31) / 32; }
// tiles16: [row panel of 16][tile_words of a canonical row][16 rows], codes of 2, 4 or 8 bits, whole steps of 64
// columns.
inline int64_t tile_words(int bits, int64_t cols) { return (cols + 63) / 64 * 2 * bits; }
inline int64_t panel_count(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }
// vnni64: [group of 4 panels][step][panel][16 rows][4 k] bytes, the last group with as many panels as it has rows for.
// A byte holds vnni_fields codes u = q - lowest, so u >= 0 (int: q + 2^(bits-1); uint: q; sign: 0, 1): field f of 8 /
// vnni_fields bits is that of contracted index 4 (step vnni_fields + f) + byte. Behind the last group: int32
// [panels][16], the sum of u of every row modulo 2^32. Nothing at all when there are no columns. vnni64_t is vnni64 of
// the transpose: of a matrix stored [k, free].
inline constexpr int64_t kVnniPanels = 4;
inline constexpr int vnni_fields(int bits) { return bits <= 1 ? 8 : bits == 2 ? 4 : bits <= 4 ? 2 : 1; }
inline int64_t vnni_steps(int bits, int64_t k) {
  const int64_t codes = 4 * vnni_fields(bits);
  return (k + codes - 1) / codes;
}
// Byte at which panel `panel` of step 0 lies, when it begins a group; the panels of that group.
inline int64_t vnni_group_start(int bits, int64_t panel, int64_t k) { return panel * vnni_steps(bits, k) * 64; }
inline int64_t vnni_group_panels(int64_t panel, int64_t rows) {
  const int64_t left = panel_count(rows) - panel;
  return left < kVnniPanels ? left : kVnniPanels;
}

}  // namespace bitgrad
