// Layouts as data: how the codes of a [rows, cols] matrix lie in memory. docs/architecture.md, "Layout".
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
  // Whether codes of this dtype can lie so.
  bool (*supports)(DType dtype);
  // Bytes of the whole matrix, a multiple of 64.
  int64_t (*bytes)(DType dtype, int64_t rows, int64_t cols);
  // Canonical (row stride `stride` bytes) -> this layout, and back. Output is written whole, pad included.
  void (*pack)(DType dtype, int64_t rows, int64_t cols, const void* canonical, int64_t stride, void* out);
  void (*unpack)(DType dtype, int64_t rows, int64_t cols, const void* in, void* canonical, int64_t stride);
};

// Layouts that can be packed in blocks of rows: one line each in src/dtype/layouts/rows.inc. The others are packed whole.
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

// Geometry that kernels share with the layouts.
// planes: [plane][row][64-bit word], plane p = bit p of the code.
inline int64_t plane_words(int64_t cols) { return (cols + 63) / 64; }
// panels16: [plane][row panel of 16][32-bit word of k][16 rows]: the columns of a product lie across lanes.
inline constexpr int64_t kPanelRows = 16;
inline int64_t panel_words(int64_t cols) { return (cols + 31) / 32; }
inline int64_t panel_count(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

}  // namespace bitgrad
