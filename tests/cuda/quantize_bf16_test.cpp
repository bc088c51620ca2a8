// quantize of bf16 on an emulated device against the CPU, whose codes are those of the widened values
// (tests/kernels/quantize_bf16_test.cpp).
#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/fused_quantize.h"
#include "cuda/both.h"
#include "kernels/quantize_narrow.h"

namespace bitgrad {

using namespace kernels;
using namespace quantize_problem;
using test::differing_on_device;
using test::Outcome;
using test::Placed;

namespace {

// The arrays of a problem on the current device, x `shift` elements off an aligned address. Outputs hold garbage.
struct Arrays {
  Placed<uint16_t> x;
  Placed<float> scale, offset;
  Placed<int32_t> zero;
  Placed<uint8_t> codes;
  Placed<uint64_t> mask;
  Placed<uint32_t> flags;
  QuantizeArgs args;

  Arrays(const NarrowCase& p, int64_t shift)
      : x(p.narrow, shift),
        scale(p.c.scale),
        offset(p.c.offset),
        zero(p.c.zero),
        codes(std::vector<uint8_t>(static_cast<size_t>(p.c.rows * p.c.args.stride + 1), kGarbage)),
        mask(std::vector<uint64_t>(static_cast<size_t>(p.c.rows * ((p.c.cols + 63) / 64) + 1), 0x5A5A5A5Aull)),
        flags({8u}),
        args(p.c.args) {
    args.x = {x.data(), dtypes::bf16};
    args.codes = codes.data();
    args.mask = mask.data();
    args.flags = flags.data();
    args.scale.scale = p.c.scale.empty() ? nullptr : scale.data();
    args.scale.zero = p.c.zero.empty() ? nullptr : zero.data();
    args.scale.offset = p.c.offset.empty() ? nullptr : offset.data();
  }
  void add_to(Outcome& out) const {
    out.add(codes);
    out.add(mask);
    out.add(flags);
  }
};

std::string describe(const NarrowCase& p, int64_t shift) {
  return p.c.dtype.name() + " rule " + std::to_string(static_cast<int>(p.c.args.rule)) + ", " +
         std::to_string(p.c.rows) + " x " + std::to_string(p.c.cols) + ", ldx " + std::to_string(p.c.ldx) + ", shift " +
         std::to_string(shift);
}

// on_eight: rows start at multiples of eight elements, which are read together.
NarrowCase aligned(NarrowCase p, bool on_eight) {
  if (!on_eight) return p;
  p.c.args.ldx = p.c.ldx = p.c.cols + 8 - p.c.cols % 8;
  p.narrow.resize(static_cast<size_t>(p.c.rows * p.c.ldx + 1), 0x3E80);
  return p;
}

}  // namespace

TEST_CASE(
    "quantize of bf16 on CUDA gives the CPU's codes, masks and flags, in one order or both, and clipped gradients") {
  std::mt19937 random(31);
  for_every_narrow_case(random, [&](const NarrowCase& drawn) {
    const NarrowCase p = aligned(drawn, random() % 2 == 0);
    const int64_t shift = random() % 2 == 0 ? 0 : 1, cells = p.c.rows * p.c.cols;
    const int64_t bytes = layouts::transposed.info().bytes(p.c.dtype, p.c.rows, p.c.cols);
    INFO(describe(p, shift));
    CHECK(differing_on_device([&](Outcome& out) {
            const Arrays plain(p, shift), both(p, shift);
            quantize(plain.args);
            plain.add_to(out);
            const Placed<uint8_t> transposed(std::vector<uint8_t>(static_cast<size_t>(bytes), kGarbage));
            quantize_transposed(both.args, transposed.data());
            both.add_to(out);
            out.add(transposed);
            if (p.c.dtype.kind() == DTypeKind::kCodebook) return;
            const Placed<float> g(test::some_numbers(cells, 5)), gx(test::some_numbers(cells, 6));
            clip_gradient(plain.args, g.data(), gx.data());
            out.add(gx);
          }) == 0);
  });
}

TEST_CASE("binarize of bf16 on CUDA gives the CPU's signs, sums and means") {
  std::mt19937 random(32);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {5, 63}, {66, 130}, {3, 2050}, {130, 1030}})
    for (const int64_t shift : {0, 1}) {
      const NarrowCase p = narrow_case(random, dtypes::bint1, CodeRule::kSign, kNoScale, rows, cols, false);
      const int64_t r = rows, c = cols, stride = row_bytes_memory(dtypes::bint1, c);
      INFO(describe(p, shift));
      CHECK(differing_on_device([&](Outcome& out) {
              const Placed<uint16_t> x(p.narrow, shift);
              const Placed<uint8_t> codes(std::vector<uint8_t>(static_cast<size_t>(r * stride)));
              const Placed<float> alpha(std::vector<float>(static_cast<size_t>(r)));
              const Placed<int32_t> ones(std::vector<int32_t>(static_cast<size_t>(r + c)));
              const Placed<uint32_t> flags(std::vector<uint32_t>(2));
              BinarizeArgs args;
              args.rows = r;
              args.cols = c;
              args.x = {x.data(), dtypes::bf16};
              args.ldx = p.c.ldx;
              args.codes = codes.data();
              args.stride = stride;
              args.alpha = alpha.data();
              args.row_ones = ones.data();
              args.column_ones = ones.data() + r;
              args.flags = flags.data();
              args.alpha_flags = flags.data() + 1;
              binarize(args);
              out.add(codes);
              out.add(alpha);
              out.add(ones);
              out.add(flags);
            }) == 0);
    }
}

}  // namespace bitgrad
