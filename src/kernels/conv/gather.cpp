// Gathers windows as rows. Channels that fill whole bytes are copied, for neighbouring taps at once if pixels are
// contiguous, and by vectors (gather_lines.h). Other channels are shifted together, 64 bits at a time.
#include <cstring>
#include <vector>

#include "kernels/conv/gather_lines.h"
#include "kernels/conv/loops.h"
#include "kernels/conv/taps.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {
namespace {

using namespace conv;

constexpr int64_t kShortCopy = 64;  // bytes: below this a loop over words, otherwise memcpy

inline void copy_bytes(char* to, const char* from, int64_t n) {
  if (n > kShortCopy) {
    std::memcpy(to, from, static_cast<size_t>(n));
    return;
  }
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) std::memcpy(to + i, from + i, 8);
  if (n - i >= 4) {
    std::memcpy(to + i, from + i, 4);
    i += 4;
  }
  if (n - i >= 2) {
    std::memcpy(to + i, from + i, 2);
    i += 2;
  }
  if (n - i >= 1) to[i] = from[i];
}

// Gathers windows whose tap columns are all inside, with gather_line.
class LineGather {
 public:
  // pixel: bytes per pixel; step: bytes between taps; image: that of the first channel.
  LineGather(const GatherWindowsArgs& args, const char* image, const char* pad, int64_t pixel, int64_t step)
      : g_(args.geometry),
        image_(image),
        row_(g_.w * args.stride),
        stride_(args.stride),
        from_(static_cast<size_t>(g_.kh)),
        advance_(static_cast<size_t>(g_.kh)),
        end_(static_cast<char*>(args.rows) + (args.end - args.begin) * args.row_stride) {
    line_.rows = g_.kh;
    line_.bytes = g_.kw * pixel;
    line_.span = (g_.kw - 1) * step + pixel;
    line_.row_stride = args.row_stride;
    written_ = g_.kh * line_.bytes + line_overrun(line_.bytes, line_.span);
    usable_ = has_gather_line(line_.bytes, line_.span) && args.row_stride <= written_;
    if (!usable_) return;
    first_ = (g_.left + g_.stride_x - 1) / g_.stride_x;
    const int64_t room = g_.w - 1 - (g_.kw - 1) * g_.dilation_x + g_.left;
    last_ = room < 0 ? -1 : room / g_.stride_x;
    outside_.resize(static_cast<size_t>(line_.span));
    for (int64_t kx = 0; kx < g_.kw; ++kx) {
      std::memcpy(outside_.data() + kx * step, pad, static_cast<size_t>(pixel));
      if (line_.bytes == line_.span) continue;
      for (int64_t i = 0; i < pixel; ++i)
        order_[static_cast<size_t>(kx * pixel + i)] = static_cast<uint8_t>(kx * step + i);
    }
    line_.order = &order_;
  }
  LineGather(const LineGather&) = delete;
  LineGather& operator=(const LineGather&) = delete;

  // Writes up to `most` windows from `at` on; returns how many were written.
  int64_t run(const WindowCursor& at, int64_t most, char* to) {
    if (!usable_ || at.ox() < first_ || at.ox() > last_) return 0;
    const int64_t fit = end_ - to < written_ ? 0 : (end_ - to - written_) / line_.row_stride + 1;
    line_.windows = std::min({most, last_ + 1 - at.ox(), g_.ow - at.ox(), fit});
    if (line_.windows <= 0) return 0;
    for (int64_t ky = 0; ky < g_.kh; ++ky) {
      const int64_t row = at.row(ky);
      from_[static_cast<size_t>(ky)] = row < 0 ? outside_.data() : image_ + row * row_ + at.column() * stride_;
      advance_[static_cast<size_t>(ky)] = row < 0 ? 0 : g_.stride_x * stride_;
    }
    line_.from = from_.data();
    line_.advance = advance_.data();
    line_.to = to;
    gather_line(line_);
    return line_.windows;
  }

 private:
  const WindowGeometry& g_;
  const char* image_;
  int64_t row_, stride_;           // bytes per row of pixels, and between pixels
  int64_t first_ = 0, last_ = -1;  // windows of a row
  int64_t written_ = 0;            // bytes written from the first byte of a window on
  bool usable_ = false;
  GatherLine line_;
  std::array<uint8_t, kLineBytes> order_{};
  std::vector<const char*> from_;
  std::vector<int64_t> advance_;
  std::vector<char> outside_;  // a tap row of outside pixels
  const char* end_;            // end of the rows
};

class ByteGather {
 public:
  explicit ByteGather(const GatherWindowsArgs& args)
      : args_(args),
        g_(args.geometry),
        image_(static_cast<const char*>(args.image) + args.first_bit / 8),
        pad_(static_cast<const char*>(args.pad) + args.first_bit / 8),
        bytes_(args.bits / 8),
        step_(g_.dilation_x * args.stride) {}

  void run() const {
    WindowCursor at(g_, args_.begin);
    LineGather lines(args_, image_, pad_, bytes_, step_);
    char* to = static_cast<char*>(args_.rows);
    for (int64_t m = args_.begin, done; m < args_.end; m += done, at.skip(done), to += done * args_.row_stride) {
      done = lines.run(at, args_.end - m, to);
      if (done > 0) continue;
      window(at, to);
      done = 1;
    }
  }

 private:
  void window(const WindowCursor& at, char* to) const {
    const int64_t used = g_.taps() * bytes_, rest = args_.row_stride - used, column = at.column();
    const TapRange taps = inside(g_, column);
    for (int64_t ky = 0; ky < g_.kh; ++ky) tap_row(at.row(ky), column, taps, to + ky * g_.kw * bytes_);
    if (rest > 0) std::memset(to + used, 0, static_cast<size_t>(rest));
  }
  void pads(char* to, int64_t begin, int64_t end) const {
    for (int64_t kx = begin; kx < end; ++kx) copy_bytes(to + kx * bytes_, pad_, bytes_);
  }
  void tap_row(int64_t row, int64_t column, TapRange taps, char* to) const {
    if (row < 0) return pads(to, 0, g_.kw);
    pads(to, 0, taps.begin);
    const char* from = image_ + ((row * g_.w + column) * args_.stride + taps.begin * step_);
    if (step_ == bytes_) {
      copy_bytes(to + taps.begin * bytes_, from, (taps.end - taps.begin) * bytes_);
    } else {
      for (int64_t kx = taps.begin; kx < taps.end; ++kx, from += step_) copy_bytes(to + kx * bytes_, from, bytes_);
    }
    pads(to, taps.end, g_.kw);
  }

  const GatherWindowsArgs& args_;
  const WindowGeometry& g_;
  const char *image_, *pad_;
  int64_t bytes_, step_;
};

// Appends bits to a row of words.
class BitWriter {
 public:
  explicit BitWriter(uint64_t* to) : to_(to) {}
  // Appends the low `count` bits of `bits`, 1 .. 64; the others must be 0.
  void put(uint64_t bits, int64_t count) {
    word_ |= bits << used_;
    if (used_ + count < 64) {
      used_ += count;
      return;
    }
    *to_++ = word_;
    word_ = used_ == 0 ? 0 : bits >> (64 - used_);
    used_ += count - 64;
  }
  uint64_t* finish() {
    if (used_ > 0) *to_++ = word_;
    return to_;
  }

 private:
  uint64_t* to_;
  uint64_t word_ = 0;
  int64_t used_ = 0;
};

// Bits [first, first + count) of `words`, count 1 .. 64; reads no word beyond the last of them.
inline uint64_t bits_at(const uint64_t* words, int64_t first, int64_t count) {
  const int64_t word = first / 64, shift = first % 64;
  uint64_t bits = words[word] >> shift;
  if (shift + count > 64) bits |= words[word + 1] << (64 - shift);
  return count == 64 ? bits : bits & ((uint64_t{1} << count) - 1);
}

void append(BitWriter& out, const void* pixel, int64_t first, int64_t count) {
  const auto* words = static_cast<const uint64_t*>(pixel);
  for (int64_t i = 0; i < count; i += 64)
    out.put(bits_at(words, first + i, std::min<int64_t>(64, count - i)), std::min<int64_t>(64, count - i));
}

void gather_bits(const GatherWindowsArgs& args) {
  const WindowGeometry& g = args.geometry;
  WindowCursor at(g, args.begin);
  auto* to = static_cast<char*>(args.rows);
  for (int64_t m = args.begin; m < args.end; ++m, at.next(), to += args.row_stride) {
    auto* const words = reinterpret_cast<uint64_t*>(to);
    BitWriter out(words);
    const int64_t column = at.column();
    const TapRange taps = inside(g, column);
    for (int64_t ky = 0; ky < g.kh; ++ky) {
      const int64_t row = at.row(ky);
      for (int64_t kx = 0; kx < g.kw; ++kx) {
        const bool in = row >= 0 && kx >= taps.begin && kx < taps.end;
        const int64_t pixel = row * g.w + column + kx * g.dilation_x;
        append(out, in ? static_cast<const char*>(args.image) + pixel * args.stride : args.pad, args.first_bit,
               args.bits);
      }
    }
    std::fill(out.finish(), words + args.row_stride / 8, uint64_t{0});
  }
}

}  // namespace

void cpu::gather_windows(const GatherWindowsArgs& args) {
  if (args.end <= args.begin || args.bits == 0) return;
  if (args.bits % 8 == 0 && args.first_bit % 8 == 0) return ByteGather(args).run();
  gather_bits(args);
}

}  // namespace bitgrad::kernels
