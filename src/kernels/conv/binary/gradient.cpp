// gx of direct convolutions, fp32 or int8 times signs, with tables of gy; one image per task. See binary.h.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/conv/binary/binary.h"
#include "kernels/conv/taps.h"

namespace bitgrad::kernels::conv {
namespace {

constexpr int64_t kWindowFloats = 4 * kTableFloats;  // the tables for a window's 16 channels
constexpr int64_t kLeastSummed = 256, kMostSummed = 64, kMostStrided = 32;

// The pixels of a line with one residue modulo the stride along x, and what they read: taps that are neighbours in the
// packed order.
struct Columns {
  int64_t first = 0, pixels = 0;
  std::vector<int64_t> taps, shifts;  // kx, and window - pixel
};
struct Reads {
  int64_t tap = 0;               // the first tap, in the packed order
  std::vector<int64_t> offsets;  // offsets of each tap's tables
};

class SignGradient {
 public:
  SignGradient(const DirectConvArgs& args, const SignIsa& isa)
      : args_(args),
        isa_(isa),
        bytes_(args.dtype == dtypes::int8),
        parts_((args.channels + 15) / 16),
        blocks_((args.outputs + kLanes - 1) / kLanes) {}

  bool supports() const {
    const WindowGeometry& g = args_.geometry;
    if (!args_.input_gradient || args_.w_dtype != dtypes::bint1 || !has_lines(g) || g.pixels() == 0 ||
        args_.channels <= 0 || args_.outputs <= 0 || args_.images <= 0 || args_.c_dtype != dtypes::fp32 ||
        args_.bias != nullptr)
      return false;
    if (bytes_) return args_.w_step == 0 && args_.fold == nullptr && exact_in_floats(g.taps() * args_.channels);
    return args_.dtype == dtypes::fp32 && args_.image_scale == nullptr && args_.w_scale == nullptr &&
           bits_mode() == BitsMode::kFast;
  }
  // gx is read and written again for every 16 channels of gy.
  bool pays() const {
    const WindowGeometry& g = args_.geometry;
    return args_.images * g.pixels() >= kLeastSummed &&
           args_.channels <= (g.stride_y * g.stride_x == 1 ? kMostSummed : kMostStrided);
  }

  void run() {
    find_columns();
    find_reads();
    const Workspace index(parts_ * blocks_ * taps() * kTableCodes * kLanes * 4);
    index_ = index.as<int32_t>();
    parallel_for(parts_ * blocks_, [&](int64_t i) { pack(i / blocks_, i % blocks_); });
    parallel_for(args_.images, [&](int64_t image) { run_image(image); });
  }

 private:
  void find_columns() {
    const WindowGeometry& g = args_.geometry;
    before_ = after_ = 0;
    for (int64_t first = 0; first < std::min(g.stride_x, g.w); ++first) {
      Columns c;
      c.first = first;
      c.pixels = (g.w - first + g.stride_x - 1) / g.stride_x;
      for (int64_t kx = (first + g.left) % g.stride_x; kx < g.kw; kx += g.stride_x) {
        const int64_t shift = (first + g.left - kx) / g.stride_x;  // exact
        c.taps.push_back(kx);
        c.shifts.push_back(shift);
        before_ = std::max(before_, -shift);
        after_ = std::max(after_, shift + c.pixels - g.ow);
      }
      columns_.push_back(c);
    }
    width_ = before_ + g.ow + after_;
  }

  // Groups taps by their residues modulo the strides; the taps of a line of pixels are then contiguous.
  void find_reads() {
    const WindowGeometry& g = args_.geometry;
    kept_ = std::min(g.oh, (g.kh + g.stride_y - 1) / g.stride_y);
    std::vector<int64_t> begin;  // [residue of ky][column]
    for (int64_t ry = 0; ry < g.stride_y; ++ry)
      for (const Columns& c : columns_) {
        begin.push_back(std::ssize(order_));
        for (int64_t ky = ry; ky < g.kh; ky += g.stride_y)
          for (const int64_t kx : c.taps) order_.push_back(ky * g.kw + kx);
      }
    for (int64_t y = 0; y < g.h; ++y)
      for (int64_t i = 0; i < std::ssize(columns_); ++i) {
        const Columns& c = columns_[static_cast<size_t>(i)];
        const int64_t ry = (y + g.top) % g.stride_y;
        Reads reads{begin[static_cast<size_t>(ry * std::ssize(columns_) + i)], {}};
        for (int64_t ky = ry; ky < g.kh; ky += g.stride_y) {
          const int64_t oy = (y + g.top - ky) / g.stride_y;
          if (y + g.top < ky) break;
          if (oy >= g.oh) {
            reads.tap += std::ssize(c.taps);
            continue;
          }
          for (const int64_t shift : c.shifts)
            reads.offsets.push_back((oy % kept_ * width_ + before_ + shift) * kWindowFloats);
        }
        reads_.push_back(reads);
      }
  }

  // [part][block][tap][4][16]: the signs, in fours of 16 channels of gy, for 16 channels of x.
  int64_t taps() const { return std::ssize(order_); }
  int32_t* index_of(int64_t part, int64_t block) const {
    return index_ + (part * blocks_ + block) * taps() * kTableCodes * kLanes;
  }
  void pack(int64_t part, int64_t block) const {
    const int64_t count = std::min<int64_t>(16, args_.channels - part * 16);
    for (int64_t i = 0; i < taps(); ++i) {
      const int64_t tap = order_[static_cast<size_t>(i)] * args_.outputs;
      uint16_t masks[16] = {};
      for (int64_t j = 0; j < count; ++j)
        masks[j] = bits_at(static_cast<const char*>(args_.w) + (part * 16 + j) * args_.w_stride, tap + block * kLanes,
                           tap + args_.outputs);
      isa_.nibbles({masks, 4, index_of(part, block) + i * kTableCodes * kLanes});
    }
  }

  void run_image(int64_t image) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t line = width_ * kWindowFloats;
    // The lines of tables that the pixels of a line read, each in its own slot.
    const Workspace memory(kept_ * line * int64_t{sizeof(float)});
    auto* const tables = memory.as<float>();
    std::memset(tables, 0, static_cast<size_t>(kept_ * line) * sizeof(float));
    for (int64_t part = 0; part < parts_; ++part) {
      int64_t made = 0;  // lines of windows whose tables exist
      for (int64_t y = 0; y < g.h; ++y) {
        const int64_t last = std::min(g.oh - 1, (y + g.top) / g.stride_y);
        // Lines that end before this pixel are never read.
        const int64_t least = std::max<int64_t>(0, (y + g.top - g.kh + g.stride_y) / g.stride_y);
        for (made = std::max(made, std::min(least, g.oh)); made <= last; ++made)
          make_tables(image, part, made, tables + made % kept_ * line + before_ * kWindowFloats);
        add_line(image, part, y, tables);
      }
    }
  }

  int64_t size() const { return bytes_ ? 1 : int64_t{sizeof(float)}; }
  void make_tables(int64_t image, int64_t part, int64_t oy, float* to) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t step = args_.stride / size();
    TableLine line{};
    line.x = static_cast<const char*>(args_.image) + ((image * g.oh + oy) * g.ow * step + part * 16) * size();
    line.bytes = bytes_;
    line.step = step;
    line.pixels = g.ow;
    line.channels = std::min<int64_t>(16, args_.channels - part * 16);
    line.fold = args_.fold == nullptr ? nullptr : args_.fold + part * 16;
    line.bf16 = args_.bf16;
    line.tables = to;
    isa_.tables(line);
  }

  void add_line(int64_t image, int64_t part, int64_t y, const float* tables) const {
    const WindowGeometry& g = args_.geometry;
    const float scale = (args_.image_scale == nullptr ? 1.0f : args_.image_scale[image * args_.image_step]) *
                        (args_.w_scale == nullptr ? 1.0f : *args_.w_scale);
    for (int64_t i = 0; i < std::ssize(columns_); ++i) {
      const Columns& c = columns_[static_cast<size_t>(i)];
      const Reads& reads = reads_[static_cast<size_t>(y * std::ssize(columns_) + i)];
      for (int64_t block = 0; block < blocks_; ++block) {
        TableRow row{};
        row.index = index_of(part, block) + reads.tap * kTableCodes * kLanes;
        row.out = static_cast<float*>(args_.c) + ((image * g.h + y) * g.w + c.first) * args_.ldc + block * kLanes;
        row.step = g.stride_x * args_.ldc;
        row.pixels = c.pixels;
        row.channels = std::min(kLanes, args_.outputs - block * kLanes);
        row.resume = part > 0;
        row.scale = part + 1 == parts_ ? scale : 1.0f;
        row.offsets = reads.offsets.data();
        row.taps = std::ssize(reads.offsets);
        row.tables = tables;
        isa_.table_row(row);
      }
    }
  }

  const DirectConvArgs& args_;
  const SignIsa& isa_;
  const bool bytes_;
  const int64_t parts_, blocks_;                // parts of 16 channels of gy, blocks of 16 channels of x
  int64_t before_ = 0, after_ = 0, width_ = 0;  // zero windows before and after a line, and the total
  int64_t kept_ = 0;                            // lines of tables kept
  std::vector<Columns> columns_;
  std::vector<Reads> reads_;    // [line of pixels][column]
  std::vector<int64_t> order_;  // taps in packed order
  int32_t* index_ = nullptr;
};

}  // namespace

bool conv_gradient_signs(const DirectConvArgs& args, const SignIsa& isa) {
  SignGradient gradient(args, isa);
  if (!gradient.supports()) return false;
  gradient.run();
  return true;
}
bool conv_gradient_signs_pays(const DirectConvArgs& args, const SignIsa& isa) {
  const SignGradient gradient(args, isa);
  return gradient.supports() && gradient.pays();
}

}  // namespace bitgrad::kernels::conv
