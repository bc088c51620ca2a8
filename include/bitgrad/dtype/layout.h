// Layouts as data: how the codes of a [rows, cols] matrix are arranged in memory. docs/architecture.md, "Layout".
//
// Canonical is the layout of files and of the reference kernels. All others are derived: `pack` creates them from
// canonical codes, `unpack` restores those.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad {

struct LayoutInfo {
  std::string_view name;
  // Whether codes of this dtype can be stored in this layout.
  bool (*supports)(DType dtype);
  // Size of the whole matrix in bytes, a multiple of 64.
  int64_t (*bytes)(DType dtype, int64_t rows, int64_t cols);
  // Convert canonical codes (row stride `stride` bytes) to this layout, and back. The output is written in full, with
  // padding.
  void (*pack)(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out);
  void (*unpack)(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride);
};

// Layouts that can be packed in blocks of rows, one line of src/dtype/layouts/rows.inc each. Others are packed whole.
struct RowPacking {
  int64_t unit;  // blocks start at multiples of this many rows
  // Packs canonical rows [begin, end) to where LayoutInfo::pack puts them. The block that ends at `rows` also writes
  // the padding after the last row. Packing all rows, in any order of blocks, gives the same bytes as pack.
  void (*pack)(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out, int64_t begin,
               int64_t end);
  // Restores canonical rows [begin, end), any range, to `canonical`, the place of row `begin`.
  void (*unpack)(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride,
                 int64_t begin, int64_t end);
};

class Layout {
 public:
  constexpr Layout() = default;  // canonical
  constexpr explicit Layout(uint8_t id) : id_(id) {}
  constexpr uint8_t id() const { return id_; }
  const LayoutInfo& info() const;
  const RowPacking* rows() const;  // nullptr if packed as a whole
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
// A multiple of the unit of every RowPacking: blocks that start at multiples of it can be packed in any such layout.
inline constexpr int64_t kRowBlock = 16;

// Geometry shared by kernels and layouts.
// planes: [plane][row][64-bit word]; plane p holds bit p of each code.
inline int64_t plane_words(int64_t cols) { return (cols + 63) / 64; }
// panels16: [plane][panel of 16 rows][32-bit word of k][16 rows]: the columns of the product are spread across lanes.
inline constexpr int64_t kPanelRows = 16;
inline int64_t panel_words(int64_t cols) { return (cols + 31) / 32; }
// tiles16: [panel of 16 rows][tile_words of a canonical row][16 rows]: codes of 2, 4 or 8 bits, padded to whole steps
// of 64 columns.
inline int64_t tile_words(int bits, int64_t cols) { return (cols + 63) / 64 * 2 * bits; }
inline int64_t panel_count(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }
// vnni64: [group of 4 panels][step][panel][16 rows][4 k] bytes; the last group has only as many panels as there are
// rows for. Each byte holds vnni_fields codes u = q - lowest >= 0 (int: q + 2^(bits-1); uint: q; sign: 0, 1): field f,
// of 8 / vnni_fields bits, has index 4 * (step * vnni_fields + f) + byte along k. After the last group: int32
// [panels][16], the sum of u over each row modulo 2^32. Empty if there are no columns. vnni64_t is vnni64 of the
// transpose, for a matrix stored [k, free].
inline constexpr int64_t kVnniPanels = 4;
inline constexpr int vnni_fields(int bits) { return bits <= 1 ? 8 : bits == 2 ? 4 : bits <= 4 ? 2 : 1; }
inline int64_t vnni_steps(int bits, int64_t k) {
  const int64_t codes = int64_t{4} * vnni_fields(bits);
  return (k + codes - 1) / codes;
}
// Byte offset of step 0 of `panel`, which must be the first of a group, and the number of panels in that group.
inline int64_t vnni_group_start(int bits, int64_t panel, int64_t k) { return panel * vnni_steps(bits, k) * 64; }
inline int64_t vnni_group_panels(int64_t panel, int64_t rows) {
  const int64_t left = panel_count(rows) - panel;
  return left < kVnniPanels ? left : kVnniPanels;
}

}  // namespace bitgrad
