// quantize of bf16: the codes, masks and flags of the widened values, on every ISA.
#include "kernels/quantize.h"
#include "kernels/quantize_narrow.h"

namespace bitgrad {

using namespace kernels;
using namespace quantize_problem;

namespace {

struct Coded {
  std::vector<uint8_t> codes;
  std::vector<uint64_t> mask;
  uint32_t flags = 8;
  friend bool operator==(const Coded&, const Coded&) = default;
};

Coded coded(const Case& c, const FloatsIn& x, bool with_mask) {
  Coded out;
  out.codes.assign(static_cast<size_t>(c.rows * c.args.stride + 1), kGarbage);
  out.mask.assign(static_cast<size_t>(c.rows * ((c.cols + 63) / 64) + 1), 0x5A5A5A5A5A5A5A5Aull);
  QuantizeArgs args = c.args;
  args.x = x;
  args.codes = out.codes.data();
  args.mask = with_mask ? out.mask.data() : nullptr;
  args.flags = &out.flags;
  args.scale.scale = c.scale.empty() ? nullptr : c.scale.data();
  args.scale.zero = c.zero.empty() ? nullptr : c.zero.data();
  args.scale.offset = c.offset.empty() ? nullptr : c.offset.data();
  quantize(args);
  return out;
}

std::vector<float> clipped(const Case& c, const FloatsIn& x, const std::vector<float>& g) {
  std::vector<float> gx(g.size(), -9.0f);
  QuantizeArgs args = c.args;
  args.x = x;
  args.scale.scale = c.scale.empty() ? nullptr : c.scale.data();
  args.scale.zero = c.zero.empty() ? nullptr : c.zero.data();
  args.scale.offset = c.offset.empty() ? nullptr : c.offset.data();
  clip_gradient(args, g.data(), gx.data());
  return gx;
}

// Arrays that begin one element behind their allocation.
struct Unaligned {
  std::vector<uint16_t> narrow{0};
  explicit Unaligned(const std::vector<uint16_t>& x) { narrow.insert(narrow.end(), x.begin(), x.end()); }
  FloatsIn in() const { return {narrow.data() + 1, dtypes::bf16}; }
};

}  // namespace

TEST_CASE(
    "quantize gives bf16 the codes, mask and flags of the widened values, for every dtype, rule and granularity") {
  const test::RestoreCpu restore;
  std::mt19937 random(21);
  for_every_narrow_case(random, [&](const NarrowCase& p) {
    const Case& c = p.c;
    INFO(c.dtype << " rule " << static_cast<int>(c.args.rule) << ", " << c.rows << " x " << c.cols << ", ldx "
                 << c.ldx);
    const Unaligned x(p.narrow);
    for (const IsaLevel level : kLevels) {
      set_isa_cap(level);
      for (const bool with_mask : {false, true})
        CHECK(coded(c, x.in(), with_mask) == coded(c, FloatsIn(c.x.data()), with_mask));
    }
  });
}

TEST_CASE("quantize cuts long rows of bf16 as those of fp32") {
  const test::RestoreCpu restore;
  std::mt19937 random(22);
  for (const auto& [dtype, rule] : {std::pair{dtypes::bint1, CodeRule::kSign}, {dtypes::int4, CodeRule::kInverse}})
    for (const bool dense : {false, true}) {
      const NarrowCase p = narrow_case(random, dtype, rule, kRow, 3, 2 * 16384 + 70, dense);
      const Unaligned x(p.narrow);
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        CHECK(coded(p.c, x.in(), true) == coded(p.c, FloatsIn(p.c.x.data()), true));
      }
    }
}

TEST_CASE("clip_gradient at bf16 x is that at the widened ones") {
  const test::RestoreCpu restore;
  std::mt19937 random(23);
  for_every_narrow_case(random, [&](const NarrowCase& p) {
    const Case& c = p.c;
    if (c.dtype.kind() == DTypeKind::kCodebook) return;
    INFO(c.dtype << " rule " << static_cast<int>(c.args.rule) << ", " << c.rows << " x " << c.cols << ", ldx "
                 << c.ldx);
    const Unaligned x(p.narrow);
    std::vector<float> g;
    for (int64_t i = 0; i < c.rows * c.cols; ++i) g.push_back(static_cast<float>(random() % 100) - 49.5f);
    for (const IsaLevel level : kLevels) {
      set_isa_cap(level);
      CHECK(clipped(c, x.in(), g) == clipped(c, FloatsIn(c.x.data()), g));
    }
  });
}

TEST_CASE("binarize of bf16 gives the signs, sums and means of the widened values") {
  const test::RestoreCpu restore;
  std::mt19937 random(24);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {5, 63}, {66, 130}, {3, 2050}}) {
    const NarrowCase p = narrow_case(random, dtypes::bint1, CodeRule::kSign, kNoScale, rows, cols, false);
    const int64_t r = rows, c = cols, stride = row_bytes_memory(dtypes::bint1, c);
    INFO(r << " x " << c);
    const Unaligned x(p.narrow);
    const auto run = [&](const FloatsIn& from) {
      std::vector<uint8_t> codes(static_cast<size_t>(r * stride));
      std::vector<float> alpha(static_cast<size_t>(r));
      std::vector<int32_t> ones(static_cast<size_t>(r + c));
      std::vector<uint32_t> flags(2);
      BinarizeArgs args;
      args.rows = r;
      args.cols = c;
      args.x = from;
      args.ldx = p.c.ldx;
      args.codes = codes.data();
      args.stride = stride;
      args.alpha = alpha.data();
      args.row_ones = ones.data();
      args.column_ones = ones.data() + r;
      args.flags = flags.data();
      args.alpha_flags = flags.data() + 1;
      binarize(args);
      for (const float a : alpha) flags.push_back(std::bit_cast<uint32_t>(a));
      return std::tuple(codes, ones, flags);
    };
    CHECK(run(x.in()) == run(FloatsIn(p.c.x.data())));
  }
}

}  // namespace bitgrad
