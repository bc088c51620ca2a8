#include "bitgrad/dtype/layout.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/dtype/codec.h"
#include "dtype_fixtures.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Shape {
  int64_t rows, cols;
};
const Shape kShapes[] = {{0, 0},   {0, 5},   {5, 0},  {1, 1},   {1, 64},   {3, 31},
                         {16, 32}, {17, 33}, {2, 63}, {15, 65}, {33, 129}, {70, 100}};

// Canonical [rows, cols] of random codes (or bytes, for wide dtypes) with `stride` bytes between rows. `junk` fills the
// rest.
std::vector<uint8_t> matrix(DType dtype, Shape s, int64_t stride, uint8_t junk) {
  std::vector<uint8_t> out(static_cast<size_t>(s.rows * stride), junk);
  Random random(static_cast<uint64_t>(s.rows * 1000 + s.cols));
  const int64_t used_bits = s.cols * dtype.bits();
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t b = 0; b < used_bits; ++b) {
      uint8_t& byte = out[static_cast<size_t>(r * stride + b / 8)];
      const uint8_t bit = static_cast<uint8_t>(1u << (b % 8));
      byte = static_cast<uint8_t>((random.next() & 1) != 0 ? byte | bit : byte & ~bit);
    }
  }
  return out;
}

// `row_bytes` bytes of every row of exact size, with zero pad: what unpack must give.
std::vector<uint8_t> clean_rows(DType dtype, Shape s, const std::vector<uint8_t>& from, int64_t stride,
                                int64_t row_bytes) {
  std::vector<uint8_t> out(static_cast<size_t>(s.rows * row_bytes), 0);
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t b = 0; b < s.cols * dtype.bits(); ++b) {
      const int bit = bit_of(from.data() + r * stride, b);
      out[static_cast<size_t>(r * row_bytes + b / 8)] |= static_cast<uint8_t>(bit << (b % 8));
    }
  }
  return out;
}

std::vector<DType> dtypes_of(Layout layout) {
  std::vector<DType> out;
  code_dtypes_with_own();  // registers the user-made ones
  for (const DType dtype : all_dtypes()) {
    if (layout.info().supports(dtype)) out.push_back(dtype);
  }
  return out;
}

// Bit p of element (r, c) of a row-major canonical matrix.
int element_bit(DType dtype, const std::vector<uint8_t>& m, int64_t stride, int64_t r, int64_t c, int p) {
  return bit_of(m.data() + r * stride, c * dtype.bits() + p);
}

// Packs with an exact output allocation that starts as junk.
ExactBytes packed(Layout layout, DType dtype, Shape s, const std::vector<uint8_t>& m, int64_t stride) {
  ExactBytes out(layout.info().bytes(dtype, s.rows, s.cols), 0xFF);
  layout.info().pack(dtype, s.rows, s.cols, m.data(), stride, out.get());
  return out;
}

int count_bits(const ExactBytes& bytes) {
  int count = 0;
  for (int64_t b = 0; b < bytes.size() * 8; ++b) count += bit_of(bytes.get(), b);
  return count;
}
int count_element_bits(DType dtype, Shape s, const std::vector<uint8_t>& m, int64_t stride) {
  int count = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t b = 0; b < s.cols * dtype.bits(); ++b) count += bit_of(m.data() + r * stride, b);
  }
  return count;
}

}  // namespace

TEST_CASE("layouts have unique names, print them, and canonical is the default") {
  CHECK(Layout() == layouts::canonical);
  CHECK(all_layouts().size() >= 4);
  std::set<std::string_view> names;
  for (const Layout layout : all_layouts()) {
    CHECK(names.insert(layout.name()).second);
    std::ostringstream text;
    text << layout;
    CHECK(text.str() == layout.name());
  }
  CHECK(layouts::planes.name() == "planes");
  CHECK(layouts::panels16.name() == "panels16");
  CHECK(error_code_of([] { Layout(200).info(); }) == 70);
}

TEST_CASE("layouts support the dtypes that they are defined for") {
  for (const DType dtype : code_dtypes_with_own()) {
    CHECK(layouts::canonical.info().supports(dtype));
    CHECK(layouts::transposed.info().supports(dtype));
    CHECK(layouts::planes.info().supports(dtype));
    CHECK(layouts::panels16.info().supports(dtype) == (dtype.bits() <= 2));
    CHECK(layouts::tiles16.info().supports(dtype) == (dtype.bits() == 2 || dtype.bits() == 4 || dtype.bits() == 8));
  }
  for (const DType dtype : {dtypes::fp64, dtypes::fp32, dtypes::bf16, dtypes::fp16, dtypes::int64, dtypes::int32}) {
    CHECK(layouts::canonical.info().supports(dtype));
    CHECK(layouts::transposed.info().supports(dtype));
    CHECK_FALSE(layouts::planes.info().supports(dtype));
    CHECK_FALSE(layouts::panels16.info().supports(dtype));
  }
}

// bint1, or int4 where a layout holds no codes of 1 bit.
DType a_dtype_of(Layout layout) { return layout.info().supports(dtypes::bint1) ? dtypes::bint1 : dtypes::int4; }

TEST_CASE("sizes are what the definitions say, in multiples of 64 bytes") {
  CHECK(layouts::canonical.info().bytes(dtypes::bint1, 3, 65) == 64);
  CHECK(layouts::canonical.info().bytes(dtypes::bint1, 5, 65) == 128);
  CHECK(layouts::canonical.info().bytes(dtypes::fp32, 3, 7) == 128);
  CHECK(layouts::planes.info().bytes(dtypes::ternary, 5, 65) == 192);  // 2 planes * 5 rows * 2 words * 8
  CHECK(layouts::transposed.info().bytes(dtypes::int4, 17, 3) == 64);
  CHECK(layouts::panels16.info().bytes(dtypes::bint1, 17, 33) == 2 * 2 * 64);
  CHECK(layouts::panels16.info().bytes(dtypes::ternary, 17, 33) == 2 * 2 * 2 * 64);
  for (const Layout layout : all_layouts()) {
    const DType dtype = a_dtype_of(layout);
    CHECK(layout.info().bytes(dtype, 0, 9) == 0);
    CHECK(layout.info().bytes(dtype, 9, 0) == 0);
  }
}

TEST_CASE("every dtype and layout round-trips at ragged sizes, from dirty pad, to every kind of row stride") {
  for (const Layout layout : all_layouts()) {
    for (const DType dtype : dtypes_of(layout)) {
      for (const Shape s : kShapes) {
        INFO(layout.name() << " " << dtype.name() << " [" << s.rows << ", " << s.cols << "]");
        const int64_t memory = row_bytes_memory(dtype, s.cols), file = row_bytes_file(dtype, s.cols);
        for (const int64_t stride : {file, memory, memory + 24}) {
          const std::vector<uint8_t> m = matrix(dtype, s, stride, 0xC3);
          const ExactBytes out = packed(layout, dtype, s, m, stride);
          // The pad of the source does not reach the output: every set bit is a bit of an element. (The vnni layouts
          // hold other bits and sums; their test below knows each byte.)
          if (layout != layouts::vnni64 && layout != layouts::vnni64_t)
            REQUIRE(count_bits(out) == count_element_bits(dtype, s, m, stride));
          for (const int64_t to : {file, memory, memory + 24}) {
            std::vector<uint8_t> back(static_cast<size_t>(s.rows * to), 0xEE);
            layout.info().unpack(dtype, s.rows, s.cols, out.get(), back.data(), to);
            const int64_t written = std::min(to, memory);
            std::vector<uint8_t> want = clean_rows(dtype, s, m, stride, to);
            for (int64_t r = 0; r < s.rows; ++r) {
              for (int64_t b = written; b < to; ++b)
                want[static_cast<size_t>(r * to + b)] = 0xEE;  // beyond the row: untouched
            }
            REQUIRE(back == want);
          }
        }
      }
    }
  }
}

TEST_CASE("planes hold bit p of element (row, col) in word col / 64 of that row") {
  for (const DType dtype : dtypes_of(layouts::planes)) {
    for (const Shape s : kShapes) {
      INFO(dtype.name() << " [" << s.rows << ", " << s.cols << "]");
      const int64_t stride = row_bytes_memory(dtype, s.cols);
      const std::vector<uint8_t> m = matrix(dtype, s, stride, 0);
      const ExactBytes out = packed(layouts::planes, dtype, s, m, stride);
      int wrong = 0;
      for (int p = 0; p < dtype.bits(); ++p) {
        for (int64_t r = 0; r < s.rows; ++r) {
          for (int64_t c = 0; c < s.cols; ++c) {
            const int64_t word = (p * s.rows + r) * plane_words(s.cols) + c / 64;
            wrong += bit_of(out.get(), word * 64 + c % 64) != element_bit(dtype, m, stride, r, c, p) ? 1 : 0;
          }
        }
      }
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("planes of a ternary row are not-zero and negative") {
  const double numbers[] = {-1, 0, 1, 1, -1};
  uint64_t row[1];
  pack_row(dtypes::ternary, numbers, 5, row);
  ExactBytes out(64);
  layouts::planes.info().pack(dtypes::ternary, 1, 5, row, 8, out.get());
  uint64_t words[2];
  std::memcpy(words, out.get(), 16);
  CHECK(words[0] == 0b11101);
  CHECK(words[1] == 0b10001);
}

TEST_CASE("transposed holds element (row, col) as element row of canonical row col") {
  for (const DType dtype : dtypes_of(layouts::transposed)) {
    for (const Shape s : kShapes) {
      INFO(dtype.name() << " [" << s.rows << ", " << s.cols << "]");
      const int64_t stride = row_bytes_memory(dtype, s.cols), out_stride = row_bytes_memory(dtype, s.rows);
      const std::vector<uint8_t> m = matrix(dtype, s, stride, 0);
      const ExactBytes out = packed(layouts::transposed, dtype, s, m, stride);
      int wrong = 0;
      for (int64_t r = 0; r < s.rows; ++r) {
        for (int64_t c = 0; c < s.cols; ++c) {
          for (int p = 0; p < dtype.bits(); ++p) {
            const int got = bit_of(out.get() + c * out_stride, r * dtype.bits() + p);
            wrong += got != element_bit(dtype, m, stride, r, c, p) ? 1 : 0;
          }
        }
      }
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("panels16 holds word w of row r of plane p at ((p panels + r / 16) words + w) 16 + r mod 16") {
  for (const DType dtype : dtypes_of(layouts::panels16)) {
    for (const Shape s : kShapes) {
      INFO(dtype.name() << " [" << s.rows << ", " << s.cols << "]");
      const int64_t stride = row_bytes_memory(dtype, s.cols);
      const std::vector<uint8_t> m = matrix(dtype, s, stride, 0);
      const ExactBytes out = packed(layouts::panels16, dtype, s, m, stride);
      int wrong = 0;
      for (int p = 0; p < dtype.bits(); ++p) {
        for (int64_t r = 0; r < s.rows; ++r) {
          for (int64_t c = 0; c < s.cols; ++c) {
            const int64_t word = ((p * panel_count(s.rows) + r / 16) * panel_words(s.cols) + c / 32) * 16 + r % 16;
            wrong += bit_of(out.get(), word * 32 + c % 32) != element_bit(dtype, m, stride, r, c, p) ? 1 : 0;
          }
        }
      }
      REQUIRE(wrong == 0);
    }
  }
}

// Every byte of vnni64 of a matrix whose element (r, c) has the raw code `raw(r, c)`, written from layout.h.
template <typename Raw>
std::vector<uint8_t> vnni64_bytes(DType dtype, int64_t rows, int64_t cols, Raw raw) {
  const int bits = dtype.bits(), fields = bits == 1 ? 8 : bits == 2 ? 4 : bits <= 4 ? 2 : 1;
  const int64_t panels = (rows + 15) / 16, steps = (cols + 4 * fields - 1) / (4 * fields);
  std::vector<uint8_t> out(static_cast<size_t>(cols == 0 ? 0 : panels * (steps + 1) * 64), 0);
  if (out.empty()) return out;
  std::vector<uint32_t> sums(static_cast<size_t>(panels * 16), 0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const uint32_t flip = dtype.kind() == DTypeKind::kInt ? 1u << (bits - 1) : 0;
      const uint32_t u = static_cast<uint32_t>(raw(r, c)) ^ flip;
      const int64_t group = r / 64, in_group = std::min<int64_t>(4, panels - 4 * group), step = c / (4 * fields);
      const int64_t at = group * 4 * steps * 64 + (step * in_group + r % 64 / 16) * 64 + r % 16 * 4 + c % 4;
      out[static_cast<size_t>(at)] |= static_cast<uint8_t>(u << (c / 4 % fields * (8 / fields)));
      sums[static_cast<size_t>(r)] += u;
    }
  }
  std::memcpy(out.data() + panels * steps * 64, sums.data(), sums.size() * 4);
  return out;
}

TEST_CASE("vnni64 holds biased codes in fields of lines of 16 rows x 4 columns, and the sum of every row") {
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.insert(shapes.end(), {{64, 32}, {65, 4}, {130, 515}, {3, 1100}, {600, 9}, {9, 2100}});
  for (const DType dtype : dtypes_of(layouts::vnni64)) {
    for (const Shape s : shapes) {
      INFO(dtype.name() << " [" << s.rows << ", " << s.cols << "]");
      const int64_t stride = row_bytes_memory(dtype, s.cols);
      const std::vector<uint8_t> m = matrix(dtype, s, stride, 0xC3);
      const auto raw = [&](int64_t r, int64_t c) {
        uint32_t code = 0;
        for (int p = 0; p < dtype.bits(); ++p)
          code |= static_cast<uint32_t>(element_bit(dtype, m, stride, r, c, p)) << p;
        return code;
      };
      const auto transposed = [&](int64_t r, int64_t c) { return raw(c, r); };
      const auto same = [](const ExactBytes& got, const std::vector<uint8_t>& want) {
        return got.size() == static_cast<int64_t>(want.size()) &&
               (want.empty() || std::memcmp(got.get(), want.data(), want.size()) == 0);
      };
      const std::vector<uint8_t> rows = vnni64_bytes(dtype, s.rows, s.cols, raw);
      const std::vector<uint8_t> columns = vnni64_bytes(dtype, s.cols, s.rows, transposed);
      const IsaLevel cap = isa_cap();
      for (const IsaLevel level : {cap, IsaLevel::kScalar}) {
        set_isa_cap(level);
        CHECK(same(packed(layouts::vnni64, dtype, s, m, stride), rows));
        CHECK(same(packed(layouts::vnni64_t, dtype, s, m, stride), columns));
      }
      set_isa_cap(cap);
    }
  }
  CHECK_FALSE(layouts::vnni64.info().supports(dtypes::nf4));
  CHECK_FALSE(layouts::vnni64_t.info().supports(dtypes::fp32));
  CHECK(error_of([] { layouts::vnni64_t.info().bytes(dtypes::int32, 2, 2); }) ==
        "[layout vnni64_t] dtype: got int32, expected a code dtype of kind int, uint or sign.");
}

TEST_CASE("tiles16 holds 32-bit word w of canonical row r at ((r / 16) words + w) 16 + r mod 16") {
  for (const DType dtype : dtypes_of(layouts::tiles16)) {
    for (const Shape s : kShapes) {
      INFO(dtype.name() << " [" << s.rows << ", " << s.cols << "]");
      const int64_t stride = row_bytes_memory(dtype, s.cols), bits = dtype.bits();
      const std::vector<uint8_t> m = matrix(dtype, s, stride, 0);
      const ExactBytes out = packed(layouts::tiles16, dtype, s, m, stride);
      const int64_t words = (s.cols + 63) / 64 * 2 * bits;
      CHECK(layouts::tiles16.info().bytes(dtype, s.rows, s.cols) == (s.rows + 15) / 16 * words * 64);
      int wrong = 0;
      for (int p = 0; p < bits; ++p) {
        for (int64_t r = 0; r < s.rows; ++r) {
          for (int64_t c = 0; c < s.cols; ++c) {
            const int64_t word = (r / 16 * words + c * bits / 32) * 16 + r % 16;
            const int64_t bit = word * 32 + (c * bits + p) % 32;
            wrong += bit_of(out.get(), bit) != element_bit(dtype, m, stride, r, c, p) ? 1 : 0;
          }
        }
      }
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("an unsupported dtype, shape or stride of a layout is an error that names it") {
  ExactBytes memory(1024);
  const LayoutInfo& planes = layouts::planes.info();
  const LayoutInfo& panels = layouts::panels16.info();
  CHECK(error_of([&] { planes.bytes(dtypes::fp32, 2, 2); }) ==
        "[layout planes] dtype: got fp32, expected a code dtype of at most 8 bits.");
  CHECK(contains(error_of([&] { panels.pack(dtypes::int4, 2, 2, memory.get(), 8, memory.get()); }),
                 "[layout panels16] dtype: got int4, expected a code dtype of at most 2 bits."));
  CHECK(contains(error_of([&] { panels.unpack(dtypes::fp32, 2, 2, memory.get(), memory.get(), 8); }), "got fp32"));
  for (const Layout layout : all_layouts()) {
    const DType dtype = a_dtype_of(layout);
    CHECK(contains(error_of([&] { layout.info().bytes(dtype, -1, 2); }), "shape: got [-1, 2]"));
    CHECK(contains(error_of([&] { layout.info().pack(dtype, 2, 17, memory.get(), 2, memory.get()); }),
                   dtype == dtypes::bint1 ? "row stride of bint1 [2, 17]: got 2 bytes, expected at least 3."
                                          : "row stride of int4 [2, 17]: got 2 bytes, expected at least 9."));
    CHECK(contains(error_of([&] { layout.info().unpack(dtype, 2, 17, memory.get(), memory.get(), 2); }), "row stride"));
  }
}

TEST_CASE("blocks of rows in any order pack to the bytes of the whole") {
  int layouts_by_rows = 0;
  for (const Layout layout : all_layouts()) {
    const RowPacking* by_rows = layout.rows();
    if (by_rows == nullptr) continue;
    ++layouts_by_rows;
    for (const DType dtype : dtypes_of(layout))
      for (const Shape s : kShapes) {
        INFO(layout << ' ' << dtype << " [" << s.rows << ',' << s.cols << ']');
        const int64_t stride = row_bytes_memory(dtype, s.cols) + 8;
        const std::vector<uint8_t> canonical = matrix(dtype, s, stride, 0xA5);
        const size_t bytes = static_cast<size_t>(layout.info().bytes(dtype, s.rows, s.cols));
        std::vector<uint8_t> whole(bytes, 0x11), rows(bytes, 0x22);
        layout.info().pack(dtype, s.rows, s.cols, canonical.data(), stride, whole.data());
        const int64_t step = 2 * by_rows->unit;
        for (int64_t begin = s.rows / step * step; begin >= 0; begin -= step)
          if (begin < s.rows || begin == 0)
            by_rows->pack(dtype, s.rows, s.cols, canonical.data(), stride, rows.data(), begin,
                          std::min(begin + step, s.rows));
        CHECK(rows == whole);
      }
  }
  CHECK(layouts_by_rows >= 4);
}

TEST_CASE("layouts of blocks of rows restore any range of rows, and write nothing else") {
  int checked = 0;
  for (const Layout layout : all_layouts()) {
    if (layout.rows() == nullptr) continue;
    for (const DType dtype : dtypes_of(layout)) {
      for (const Shape s : kShapes) {
        const int64_t stride = row_bytes_memory(dtype, s.cols);
        const std::vector<uint8_t> m = matrix(dtype, s, stride, 0), clean = clean_rows(dtype, s, m, stride, stride);
        const ExactBytes there = packed(layout, dtype, s, m, stride);
        const int64_t ends[] = {0, 1, s.rows / 2, std::min<int64_t>(s.rows, 16), s.rows};
        for (const int64_t begin : ends) {
          for (const int64_t end : ends) {
            if (begin > end || end > s.rows) continue;
            ExactBytes out((end - begin) * stride, 0xFF);
            layout.rows()->unpack(dtype, s.rows, s.cols, there.get(), out.get(), stride, begin, end);
            INFO(layout << ' ' << dtype << " [" << s.rows << ',' << s.cols << "], rows " << begin << " to " << end);
            const bool same = out.size() == 0 || std::memcmp(out.get(), clean.data() + begin * stride,
                                                             static_cast<size_t>(out.size())) == 0;
            CHECK(same);
            ++checked;
          }
        }
      }
    }
  }
  CHECK(checked > 1000);
}
