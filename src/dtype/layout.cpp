// The layout table: one record per line of layouts.inc.
#include "bitgrad/dtype/layout.h"

#include <algorithm>
#include <iterator>
#include <ostream>

#include "bitgrad/base/error.h"
#include "dtype/layouts/layouts.h"

namespace bitgrad {
namespace {

constexpr LayoutInfo kLayouts[] = {
#define BITGRAD_LAYOUT(symbol, text, space) {text, space::supports, space::bytes, space::pack, space::unpack},
#include "bitgrad/dtype/layouts.inc"
#undef BITGRAD_LAYOUT
};

struct RowEntry {
  Layout layout;
  RowPacking rows;
};
constexpr RowEntry kRowPackings[] = {
#define BITGRAD_LAYOUT_ROWS(symbol, unit, space) {layouts::symbol, {unit, space::pack_rows, space::unpack_rows}},
#include "dtype/layouts/rows.inc"
#undef BITGRAD_LAYOUT_ROWS
};
static_assert(std::all_of(std::begin(kRowPackings), std::end(kRowPackings),
                          [](const RowEntry& entry) { return kRowBlock % entry.rows.unit == 0; }));

}  // namespace

const RowPacking* Layout::rows() const {
  for (const RowEntry& entry : kRowPackings)
    if (entry.layout == *this) return &entry.rows;
  return nullptr;
}

const LayoutInfo& Layout::info() const {
  ensure(id_ < std::size(kLayouts), "layout", "handle: got ", int{id_}, ", expected one below ", std::size(kLayouts),
         '.');
  return kLayouts[id_];
}

std::ostream& operator<<(std::ostream& out, Layout layout) { return out << layout.name(); }

std::vector<Layout> all_layouts() {
  std::vector<Layout> all;
  for (size_t i = 0; i < std::size(kLayouts); ++i) all.push_back(Layout(static_cast<uint8_t>(i)));
  return all;
}

}  // namespace bitgrad
