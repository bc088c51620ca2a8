// Gathered windows against a loop over taps and bits, under every cap, and nothing written behind the last row.
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/rng.h"
#include "kernels/conv.h"
#include "support/catch.h"
#include "support/everywhere.h"

namespace bitgrad {
namespace {

using namespace kernels;

struct Draw {
  RandomStream stream;
  uint64_t at = 0;
  int64_t operator()(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(stream.bits32(at++) % static_cast<uint32_t>(hi - lo + 1));
  }
};

WindowGeometry random_geometry(Draw& draw) {
  WindowGeometry g;
  g.kh = draw(1, 4);
  g.kw = draw(1, 4);
  g.dilation_x = draw(0, 3) == 0 ? 2 : 1;
  g.dilation_y = draw(0, 3) == 0 ? 2 : 1;
  g.stride_x = draw(1, 3);
  g.stride_y = draw(1, 3);
  g.h = draw(1, 6);
  g.w = draw(1, draw(0, 1) == 0 ? 5 : 40);
  g.top = draw(0, 3);
  g.left = draw(0, 3);
  g.oh = draw(1, 5);
  g.ow = draw(1, 20);
  return g;
}

bool bit(const std::vector<uint64_t>& words, int64_t i) {
  return (words[static_cast<size_t>(i / 64)] >> (i % 64) & 1) != 0;
}

// Images and a pixel of padding of random bits.
struct Problem {
  GatherWindowsArgs args;
  std::vector<uint64_t> image, pad;

  Problem(Draw& draw, int64_t images) {
    static constexpr int64_t kBits[] = {1, 5, 8, 16, 24, 32, 40, 64, 72, 96, 128, 256, 512, 768};
    args.geometry = random_geometry(draw);
    args.bits = kBits[draw(0, 13)];
    args.first_bit = draw(0, 1) == 0 ? 0 : args.bits;
    const int64_t used = args.first_bit + args.bits + draw(0, 1) * draw(0, 80);
    const bool bytes = args.bits % 8 == 0 && draw(0, 1) == 0;
    args.stride = bytes ? (used + 7) / 8 : (used + 63) / 64 * 8;
    const int64_t windows = images * args.geometry.windows();
    args.begin = draw(0, windows / 2);
    args.end = draw(args.begin, windows);
    const int64_t row_bits = args.geometry.taps() * args.bits;
    args.row_stride = bytes && draw(0, 1) == 0 ? row_bits / 8 : (row_bits + 63) / 64 * 8 + 8 * draw(0, 1) * draw(0, 2);
    image = random_words(draw, images * args.geometry.pixels() * args.stride);
    pad = random_words(draw, args.stride);
    args.image = image.data();
    args.pad = pad.data();
  }
  static std::vector<uint64_t> random_words(Draw& draw, int64_t bytes) {
    std::vector<uint64_t> words(static_cast<size_t>((bytes + 7) / 8));
    for (uint64_t& word : words) {
      word = draw.stream.bits32(draw.at++);
      word = word << 32 | draw.stream.bits32(draw.at++);
    }
    return words;
  }

  // Bit b of the row of window m.
  bool expected(int64_t m, int64_t b) const {
    const WindowGeometry& g = args.geometry;
    const int64_t tap = b / args.bits, image_at = m / g.windows(), oy = m % g.windows() / g.ow, ox = m % g.ow;
    if (tap >= g.taps()) return false;
    const int64_t y = oy * g.stride_y + tap / g.kw * g.dilation_y - g.top;
    const int64_t x = ox * g.stride_x + tap % g.kw * g.dilation_x - g.left;
    const int64_t at = args.first_bit + b % args.bits;
    if (y < 0 || y >= g.h || x < 0 || x >= g.w) return bit(pad, at);
    return bit(image, ((image_at * g.h + y) * g.w + x) * args.stride * 8 + at);
  }

  void check() {
    constexpr uint64_t kGarbage = 0xA5A5A5A5A5A5A5A5ull;
    const int64_t rows = args.end - args.begin, bytes = rows * args.row_stride;
    std::vector<uint64_t> out(static_cast<size_t>(bytes / 8 + 16), kGarbage);
    args.rows = out.data();
    gather_windows(args);
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t b = 0; b < args.row_stride * 8; ++b)
        wrong += bit(out, i * args.row_stride * 8 + b) != expected(args.begin + i, b);
    for (int64_t b = bytes * 8; b < static_cast<int64_t>(out.size()) * 64; ++b)
      wrong += bit(out, b) != ((kGarbage >> (b % 64) & 1) != 0);
    CHECK(wrong == 0);
  }
};

}  // namespace

TEST_CASE("gathered windows equal a loop over taps and bits under every cap") {
  const IsaLevel before = isa_cap();
  Draw draw{{31, Purpose::kUser, 5, 9}};
  for (int i = 0; i < 600; ++i) {
    Problem problem(draw, 2);
    const WindowGeometry& g = problem.args.geometry;
    INFO("case " << i << ": " << g.h << 'x' << g.w << " kernel " << g.kh << 'x' << g.kw << " bits " << problem.args.bits
                 << " stride " << problem.args.stride << " row " << problem.args.row_stride);
    for (const IsaLevel level : test::isa_levels()) {
      set_isa_cap(level);
      problem.check();
    }
  }
  set_isa_cap(before);
}

}  // namespace bitgrad
