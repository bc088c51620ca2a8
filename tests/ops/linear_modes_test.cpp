// Backward products of linear in bf16 and int8: against the formulas of docs/numerics.md section 5, written out.
#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "ops/linear_int8_reference.h"
#include "ops/linear_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/needs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

ProductModes modes_of(ProductMode gx, ProductMode gw, const RandomStream* sr = nullptr, bool per_group = false) {
  ProductModes modes;
  modes.gx = gx;
  modes.gw = gw;
  modes.sr = sr;
  modes.gx_per_group = per_group;
  return modes;
}

struct Gradients {
  Tensor gx, gw, gb;
};
Gradients gradients(const Tensor& x, const Tensor& w, const Tensor& gy, const ProductModes& modes, bool want_x = true,
                    bool want_w = true, DType grad = dtypes::fp32) {
  AccumulateSink sx, sw, sb;
  Tape tape;
  const Tensor bias = Tensor::zeros({w.rows()}, dtypes::fp32);
  const Var vx = want_x ? tape.leaf(x, &sx, grad) : Var(x), vw = want_w ? tape.leaf(w, &sw, grad) : Var(w);
  Var y = linear(vx, vw, tape.leaf(bias, &sb, dtypes::fp32), modes);
  if (gy.dtype() == dtypes::bf16) y.want_grad(dtypes::bf16);
  tape.backward({y}, {gy});
  return {sx.grad(), sw.grad(), sb.grad()};
}

Tensor gradient_of(int64_t rows, int64_t cols, DType dtype, uint64_t seed) {
  return random_tensor({rows, cols}, dtype, seed, -2, 2);
}

}  // namespace

TEST_CASE("bf16 mode rounds the folded gradient once, and sums in fp32") {
  const StrictBits strict;
  struct Case {
    Granularity granularity;
    ZeroKind zero;
    bool fold;
  };
  const Case cases[] = {
      {Granularity::tensor(), ZeroKind::kNone, true},    {Granularity::channel(0), ZeroKind::kNone, true},
      {Granularity::token(), ZeroKind::kNone, true},     {Granularity::channel(1), ZeroKind::kNone, false},
      {Granularity::groups(16), ZeroKind::kNone, false}, {Granularity::tensor(), ZeroKind::kInteger, false},
      {Granularity::channel(0), ZeroKind::kReal, false}};
  const int64_t n = 9, f = 70, o = 21;
  uint64_t seed = 300;
  for (const Case& c : cases)
    for (const DType edge : {dtypes::fp32, dtypes::bf16}) {
      const Tensor x = random_codes({n, f}, dtypes::uint4, ++seed, c.granularity, c.zero),
                   w = random_codes({o, f}, dtypes::int4, ++seed, c.granularity, c.zero),
                   gy = gradient_of(n, o, edge, ++seed);
      const Gradients got = gradients(x, w, gy, modes_of(ProductMode::kBf16, ProductMode::kBf16));
      const std::vector<double> g = gy.elements();
      const auto rounded = [&](const Tensor& other, int64_t k, double number) {
        const ScaleMap map = other.scale_map();
        const float s = c.fold ? map.scale[map.index(k, 0)] : 1.0f;
        return double{bf16_to_float(bf16_from_float(static_cast<float>(number) * s))};
      };
      const std::vector<double> qx = c.fold ? x.elements() : x.values(), qw = c.fold ? w.elements() : w.values();
      const Product gx = product(
          n, f, o, [&](int64_t t, int64_t k) { return rounded(w, k, g[static_cast<size_t>(t * o + k)]); },
          [&](int64_t i, int64_t k) { return qw[static_cast<size_t>(k * f + i)]; });
      const Product gw = product(
          o, f, n, [&](int64_t j, int64_t k) { return rounded(x, k, g[static_cast<size_t>(k * o + j)]); },
          [&](int64_t i, int64_t k) { return qx[static_cast<size_t>(k * f + i)]; });
      INFO(c.granularity << ", edge " << edge);
      CHECK(worst(got.gx, gx, o) <= 1);
      CHECK(worst(got.gw, gw, n) <= 1);
    }
}

TEST_CASE("bf16 mode differs from fp32 mode, by no more than the rounding of the gradient") {
  const Tensor x = random_codes({16, 64}, dtypes::int8, 340), w = random_codes({32, 64}, dtypes::int8, 341);
  const Tensor gy = gradient_of(16, 32, dtypes::fp32, 342);
  const Gradients narrow = gradients(x, w, gy, modes_of(ProductMode::kBf16, ProductMode::kBf16)),
                  wide = gradients(x, w, gy, {});
  CHECK(bits_of(narrow.gx) != bits_of(wide.gx));
  const auto a = narrow.gw.elements(), b = wide.gw.elements();
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  CHECK(difference > 0);
  CHECK(std::sqrt(difference / size) < 0x1p-8);
}

TEST_CASE("int8 gx is the formula bit for bit: scales of w per tensor, channel, token, one group, with zero points") {
  struct Case {
    DType dtype;
    Granularity granularity;
    ZeroKind zero;
    bool along;
  };
  const Case cases[] = {{dtypes::int8, Granularity::tensor(), ZeroKind::kNone, false},
                        {dtypes::int8, Granularity::tensor(), ZeroKind::kInteger, false},
                        {dtypes::int4, Granularity::channel(0), ZeroKind::kNone, true},
                        {dtypes::uint8, Granularity::channel(0), ZeroKind::kInteger, true},
                        {dtypes::int3, Granularity::token(), ZeroKind::kInteger, true},
                        {dtypes::int8, Granularity::channel(1), ZeroKind::kInteger, false},
                        {dtypes::uint4, Granularity::groups(4096), ZeroKind::kInteger, true},
                        {dtypes::bint1, Granularity::channel(0), ZeroKind::kNone, true},
                        {dtypes::ternary, Granularity::tensor(), ZeroKind::kNone, false},
                        {dtypes::int1, Granularity::channel(0), ZeroKind::kNone, true}};
  uint64_t seed = 400;
  for (const Case& c : cases)
    for (const DType edge : {dtypes::fp32, dtypes::bf16})
      for (const RandomStream* sr : {static_cast<const RandomStream*>(nullptr), &kGradientDraws}) {
        const Tensor w = random_codes({37, 90}, c.dtype, ++seed, c.granularity, c.zero),
                     x = random_tensor({11, 90}, dtypes::fp32, ++seed), gy = gradient_of(11, 37, edge, ++seed);
        const Gradients got = gradients(x, w, gy, modes_of(ProductMode::kInt8, ProductMode::kFp32, sr), true, false);
        INFO(c.dtype << " per " << c.granularity << ", edge " << edge << (sr ? ", stochastic" : ""));
        CHECK(got.gx.elements() == int8_reference({gy, false, w, c.along, 0, sr}));
      }
}

TEST_CASE("int8 gw is the formula bit for bit: x per tensor, token with zero points, channel; any granularity of w") {
  struct Case {
    DType dtype;
    Granularity granularity;
    ZeroKind zero;
    bool along;
  };
  const Case cases[] = {{dtypes::int8, Granularity::tensor(), ZeroKind::kInteger, false},
                        {dtypes::int8, Granularity::token(), ZeroKind::kInteger, true},
                        {dtypes::uint8, Granularity::token(), ZeroKind::kInteger, true},
                        {dtypes::uint2, Granularity::channel(0), ZeroKind::kNone, true},
                        {dtypes::int4, Granularity::channel(1), ZeroKind::kInteger, false},
                        {dtypes::bint1, Granularity::tensor(), ZeroKind::kNone, false}};
  const Granularity weights[] = {Granularity::tensor(), Granularity::channel(0), Granularity::groups(32)};
  RandomStream second = kGradientDraws;
  second.purpose = Purpose::kGradientWeight;
  uint64_t seed = 500;
  for (const Case& c : cases)
    for (const Granularity& of_w : weights)
      for (const bool stochastic : {false, true}) {
        const Tensor x = random_codes({45, 70}, c.dtype, ++seed, c.granularity, c.zero),
                     w = random_codes({13, 70}, dtypes::int4, ++seed, of_w, ZeroKind::kReal),
                     gy = gradient_of(45, 13, stochastic ? dtypes::bf16 : dtypes::fp32, ++seed);
        const RandomStream* sr = stochastic ? &kGradientDraws : nullptr;
        const Gradients got = gradients(x, w, gy, modes_of(ProductMode::kFp32, ProductMode::kInt8, sr));
        INFO(c.dtype << " per " << c.granularity << (stochastic ? ", stochastic" : ""));
        CHECK(got.gw.elements() == int8_reference({gy, true, x, c.along, 0, stochastic ? &second : nullptr}));
        double sum = 0;
        for (int64_t t = 0; t < 45; ++t) sum += gy.elements()[static_cast<size_t>(t * 13)];
        CHECK(std::fabs(got.gb.elements()[0] - sum) < 1e-5);
      }
}

TEST_CASE("int8 gx with groups of w: one product a group on request, ragged and off the word too") {
  struct Case {
    DType dtype;
    int64_t features, group;
  };
  const Case cases[] = {{dtypes::int4, 256, 64},  {dtypes::int4, 200, 64},   {dtypes::int3, 300, 96},
                        {dtypes::uint8, 131, 65}, {dtypes::bint1, 230, 100}, {dtypes::ternary, 128, 127}};
  uint64_t seed = 600;
  for (const Case& c : cases)
    for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger})
      for (const RandomStream* sr : {static_cast<const RandomStream*>(nullptr), &kGradientDraws}) {
        const Tensor w = random_codes({19, c.features}, c.dtype, ++seed, Granularity::groups(c.group), zero),
                     x = random_tensor({6, c.features}, dtypes::fp32, ++seed),
                     gy = gradient_of(6, 19, dtypes::fp32, ++seed);
        const Gradients got = gradients(x, w, gy, modes_of(ProductMode::kInt8, ProductMode::kFp32, sr, true));
        INFO(c.dtype << ", " << c.features << " features in groups of " << c.group << (sr ? ", stochastic" : ""));
        CHECK(got.gx.elements() == int8_reference({gy, false, w, true, c.group, sr}));
      }
}

TEST_CASE("int8 gradients of many blocks of rows are the formula, draws numbered through") {
  RandomStream second = kGradientDraws;
  second.purpose = Purpose::kGradientWeight;
  // Blocks of 65,536 elements; more blocks than chunks of threads; a row longer than a block.
  struct Case {
    int64_t n, o;
    bool stochastic;
  };
  const Case cases[] = {{300, 301, true}, {70, 33000, false}, {2, 70000, false}};
  for (const Case& c : cases) {
    const Tensor x = random_codes({c.n, 2}, dtypes::int8, 690, Granularity::token(), ZeroKind::kInteger),
                 w = random_codes({c.o, 2}, dtypes::int8, 691, Granularity::channel(0), ZeroKind::kInteger),
                 gy = gradient_of(c.n, c.o, c.stochastic ? dtypes::bf16 : dtypes::fp32, 692);
    const ProductModes modes =
        modes_of(ProductMode::kInt8, ProductMode::kInt8, c.stochastic ? &kGradientDraws : nullptr);
    const Gradients got = gradients(x, w, gy, modes);
    const bool gx = got.gx.elements() == int8_reference({gy, false, w, true, 0, modes.sr}),
               gw = got.gw.elements() == int8_reference({gy, true, x, true, 0, c.stochastic ? &second : nullptr});
    CHECK(gx);
    CHECK(gw);
  }
}

TEST_CASE("int8 gradients in bf16 and sums over microbatches round like those of fp32 mode") {
  const Tensor w = random_codes({19, 200}, dtypes::int4, 700, Granularity::groups(64)),
               x = random_codes({6, 200}, dtypes::int8, 701, Granularity::token(), ZeroKind::kInteger);
  const ProductModes modes = modes_of(ProductMode::kInt8, ProductMode::kInt8, &kGradientDraws, true);
  const Tensor gy = gradient_of(6, 19, dtypes::fp32, 702);
  const Gradients wide = gradients(x, w, gy, modes), narrow = gradients(x, w, gy, modes, true, true, dtypes::bf16);
  for (const auto& [a, b] : {std::pair{wide.gx, narrow.gx}, std::pair{wide.gw, narrow.gw}}) {
    REQUIRE(b.dtype() == dtypes::bf16);
    for (int64_t i = 0; i < a.numel(); ++i)
      if (b.as<uint16_t>()[i] != bf16_from_float(a.as<float>()[i])) FAIL("element " << i);
  }
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    const RandomStream draws{5, Purpose::kGradAccumulate, 7, 3};
    AccumulateSink sx, sw;
    for (AccumulateSink* s : {&sx, &sw})
      if (grad == dtypes::bf16) s->set_rounding(&draws);
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      Tape tape;
      tape.backward({linear(tape.leaf(x, &sx, grad), tape.leaf(w, &sw, grad), {}, modes)}, {gy});
    }
    for (const auto& [one, sum] : {std::pair{wide.gx, sx.grad()}, std::pair{wide.gw, sw.grad()}}) {
      const std::vector<double> got = sum.elements();
      for (int64_t i = 0; i < one.numel(); ++i) {
        const float g = one.as<float>()[i];
        float expected = g + g;
        if (grad == dtypes::bf16) {
          const uint16_t r = draws.bits16(static_cast<uint64_t>(i));
          expected = bf16_to_float(bf16_from_float_stochastic(bf16_to_float(bf16_from_float_stochastic(g, r)) + g, r));
        }
        if (got[static_cast<size_t>(i)] != expected) FAIL("element " << i << " in " << grad);
      }
    }
  }
}

TEST_CASE("int8 mode: a gradient of zeros gives zeros, and empty shapes give empty or zero gradients") {
  const ProductModes modes = modes_of(ProductMode::kInt8, ProductMode::kInt8, &kGradientDraws, true);
  struct Case {
    int64_t n, f, o;
  };
  const Case cases[] = {{5, 7, 3}, {0, 7, 3}, {5, 0, 3}, {5, 7, 0}, {0, 0, 0}, {1, 1, 1}};
  for (const Case& c : cases)
    for (const Granularity& of_w : {Granularity::channel(0), Granularity::groups(64)}) {
      const Tensor x = random_codes({c.n, c.f}, dtypes::int8, 720, Granularity::token(), ZeroKind::kInteger),
                   w = random_codes({c.o, c.f}, dtypes::int8, 721, of_w, ZeroKind::kInteger);
      const Gradients got = gradients(x, w, Tensor::zeros({c.n, c.o}, dtypes::fp32), modes);
      CHECK(got.gx.elements() == std::vector<double>(static_cast<size_t>(c.n * c.f), 0.0));
      CHECK(got.gw.elements() == std::vector<double>(static_cast<size_t>(c.o * c.f), 0.0));
    }
}

TEST_CASE("int8 mode does not hide a NaN or Inf of the gradient, nor one made by folding") {
  const Tensor x = random_codes({4, 70}, dtypes::int8, 730, Granularity::token(), ZeroKind::kInteger);
  for (const Granularity& of_w : {Granularity::channel(0), Granularity::groups(64), Granularity::tensor()})
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 3e38f}) {
      Tensor w = random_codes({3, 70}, dtypes::int8, 731, of_w);
      if (bad == 3e38f) {
        QuantParams large = *w.quant();
        large.scale = std::make_shared<const Tensor>(Tensor::full(large.scale->shape(), dtypes::fp32, 1e3));
        w = w.with_quant(std::make_shared<const QuantParams>(large));
      }
      const Tensor gy = gradient_of(4, 3, dtypes::fp32, 732);
      gy.as<float>()[1 * 3 + 2] = bad;
      const Gradients got =
          gradients(x, w, gy, modes_of(ProductMode::kInt8, ProductMode::kInt8, &kGradientDraws, true));
      const bool overflows = bad == 3e38f;
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t i = 0; i < 70; ++i)
          if (std::isfinite(got.gx.as<float>()[t * 70 + i]) != (t != 1)) FAIL("gx " << t << ' ' << bad << ' ' << of_w);
      for (int64_t j = 0; j < 3; ++j)
        for (int64_t i = 0; i < 70 && !overflows; ++i)
          if (std::isfinite(got.gw.as<float>()[j * 70 + i]) != (j != 2)) FAIL("gw " << j << ' ' << bad << ' ' << of_w);
    }
}

TEST_CASE("unsupported operands of int8 mode name an alternative before the forward") {
  Tape tape;
  AccumulateSink sink;
  const auto error = [&](const Tensor& x, const Tensor& w, const ProductModes& modes) {
    const DType grad = w.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
    return error_of([&] { linear(tape.leaf(x, &sink, grad), tape.leaf(w, &sink, grad), {}, modes); });
  };
  const ProductModes gx = modes_of(ProductMode::kInt8, ProductMode::kFp32),
                     gw = modes_of(ProductMode::kFp32, ProductMode::kInt8),
                     asked = modes_of(ProductMode::kInt8, ProductMode::kFp32, nullptr, true);
  const Tensor x = random_codes({2, 128}, dtypes::int8, 740), floats = random_tensor({2, 128}, dtypes::fp32, 741),
               w = random_codes({3, 128}, dtypes::int4, 742, Granularity::groups(32)),
               w64 = random_codes({3, 128}, dtypes::int4, 743, Granularity::groups(64)),
               offset = random_codes({3, 128}, dtypes::int4, 744, Granularity::channel(0), ZeroKind::kReal);
  CHECK(error(x, w, gx) ==
        "[linear] gx int8 needs per-channel scales; use bf16: got w [3,128] int4 per group(32), expected scales per "
        "tensor or channel, or groups of at least 64 along a row with gx_per_group (backward.per_group).");
  CHECK(contains(error(x, w, asked), "gx int8 needs per-channel scales; use bf16"));
  CHECK(contains(error(x, w64, gx), "gx int8 needs per-channel scales; use bf16"));
  CHECK(error(x, w64, asked) == "");
  CHECK(contains(error(x, random_codes({3, 128}, dtypes::int4, 745, Granularity::groups(2, 0)), asked),
                 "gx int8 needs per-channel scales; use bf16"));
  CHECK(
      error(x, offset, gx) ==
      "[linear] gx int8 has no real offsets; use bf16: got w [3,128] int4, made per channel(0), expected integer zero "
      "points or none (affine, symmetric, absmax).");
  CHECK(error(floats, w, gw) ==
        "[linear] gw int8 multiplies codes: got x [2,128] fp32, expected an int, uint or sign dtype of at most 8 bits. "
        "Apply `quantize` to x first, or set gw to bf16 or fp32.");
  CHECK(contains(error(random_codes({2, 128}, dtypes::nf4, 746), w, gw), "gw int8 multiplies codes"));
  CHECK(contains(error(random_codes({2, 128}, dtypes::int8, 747, Granularity::groups(64)), w, gw),
                 "gw int8 needs scales per tensor, channel or token; use bf16: got x [2,128] int8 per group(64)"));
  const Tensor x64 = random_tensor({2, 3}, dtypes::fp64, 748), w_fp64 = random_tensor({4, 3}, dtypes::fp64, 749);
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(contains(error(x64, w_fp64, modes_of(ProductMode::kBf16, ProductMode::kFp32)),
                   "[linear] gx bf16: w is [4,3] fp64"));
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(contains(error(x64, w_fp64, gx), "[linear] gx int8 multiplies codes"));
  // Nothing is asked of operands whose gradient nobody wants.
  CHECK(error_of([&] { linear(tape.leaf(floats, &sink, dtypes::fp32), Var(w), {}, gw); }) == "");
  CHECK(error_of([&] { linear(Var(x), tape.leaf(w, &sink, dtypes::fp32), {}, gx); }) == "");
}

TEST_CASE("the gradients of bf16 and int8 mode have the same bits for any number of threads") {
  const int threads = num_threads();
  const Tensor x = random_codes({300, 70}, dtypes::int8, 770, Granularity::token(), ZeroKind::kInteger),
               w = random_codes({301, 70}, dtypes::int4, 771, Granularity::channel(0), ZeroKind::kInteger),
               gy = gradient_of(300, 301, dtypes::fp32, 772);
  for (const ProductMode mode : {ProductMode::kBf16, ProductMode::kInt8}) {
    std::vector<Gradients> runs;
    for (const int count : {1, 3}) {
      set_num_threads(count);
      runs.push_back(gradients(x, w, gy, modes_of(mode, mode, &kGradientDraws)));
    }
    set_num_threads(threads);
    const bool equal = bits_of(runs[0].gx) == bits_of(runs[1].gx) && bits_of(runs[0].gw) == bits_of(runs[1].gw);
    CHECK(equal);
  }
}

// [cpu]: scratch of the CPU's rows
TEST_CASE(
    "bf16 and int8 mode keep no float copy: 2 bytes an element of gy (int8: 1 for each product), and at most 1 MiB a "
    "thread",
    "[cpu]") {
  if (skipped_without(isa::kAvx2)) return;  // the scalar references are exempt
  const int threads = num_threads();
  set_num_threads(2);
  const int64_t n = 512, f = 1024, o = 1024, mib = 1 << 20;
  const Tensor x = random_codes({n, f}, dtypes::int8, 780, Granularity::token(), ZeroKind::kInteger),
               w = random_codes({o, f}, dtypes::int8, 781, Granularity::channel(0)),
               gy = gradient_of(n, o, dtypes::fp32, 782);
  for (const ProductMode mode : {ProductMode::kBf16, ProductMode::kInt8}) {
    AccumulateSink sx, sw;
    Tape tape;
    const Var y = linear(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w, &sw, dtypes::fp32), {}, modes_of(mode, mode));
    const int64_t before = memory_now().total;
    reset_memory_peaks();
    tape.backward({y}, {gy});
    const MemoryAccount peak = memory_peak_by_kind();
    INFO(enum_name(mode) << ", workspace " << peak[MemoryKind::kWorkspace]);
    CHECK(peak[MemoryKind::kWorkspace] <= 2 * mib);
    const int64_t results = 4 * (n * f + o * f), seed = 4 * n * o, rounded = 2 * n * o;
    CHECK(peak.total - before <= results + seed + rounded + 2 * mib + 16384);
  }
  set_num_threads(threads);
}

TEST_CASE("int8 gx and gw computed together have the bits of each alone, also beside non-finite values") {
  uint64_t seed = 900;
  for (const Granularity& of_w : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1)})
    for (const Granularity& of_x : {Granularity::tensor(), Granularity::token()})
      for (const bool broken : {false, true})
        for (const RandomStream* sr : {static_cast<const RandomStream*>(nullptr), &kGradientDraws}) {
          const Tensor x = random_codes({33, 70}, dtypes::int8, ++seed, of_x, ZeroKind::kInteger),
                       w = random_codes({19, 70}, dtypes::int4, ++seed, of_w, ZeroKind::kNone),
                       gy = gradient_of(33, 19, dtypes::fp32, ++seed);
          if (broken) gy.as<float>()[5 * 19 + 7] = std::numeric_limits<float>::infinity();
          const ProductModes modes = modes_of(ProductMode::kInt8, ProductMode::kInt8, sr);
          const Gradients both = gradients(x, w, gy, modes), gx = gradients(x, w, gy, modes, true, false),
                          gw = gradients(x, w, gy, modes, false, true);
          INFO("w per " << of_w << ", x per " << of_x << (broken ? ", an Inf" : "") << (sr ? ", stochastic" : ""));
          const bool equal = bits_of(both.gx) == bits_of(gx.gx) && bits_of(both.gw) == bits_of(gw.gw);
          CHECK(equal);
          if (broken) CHECK(std::isnan(both.gx.elements()[5 * 70]));
          if (broken) CHECK(std::isnan(both.gw.elements()[7 * 70]));
        }
}

TEST_CASE("modes have names") {
  CHECK(enum_name(ProductMode::kFp32) == "fp32");
  CHECK(enum_name(ProductMode::kBf16) == "bf16");
  CHECK(enum_name(ProductMode::kInt8) == "int8");
}

TEST_CASE("linear_simulated multiplies values in floats, forward and backward") {
  const Tensor x = random_codes({7, 33}, dtypes::uint4, 760, Granularity::token(), ZeroKind::kInteger),
               w = random_codes({5, 33}, dtypes::int3, 761, Granularity::groups(8), ZeroKind::kReal),
               bias = random_tensor({5}, dtypes::fp32, 762), gy = gradient_of(7, 5, dtypes::fp32, 763);
  const Tensor vx = Tensor::from_elements({7, 33}, dtypes::fp32, x.values()),
               vw = Tensor::from_elements({5, 33}, dtypes::fp32, w.values());
  const LinearRun floats = run_linear(vx, vw, gy, dtypes::fp32, dtypes::fp32, bias);
  AccumulateSink sx, sw, sb;
  Tape tape;
  const Var y = linear_simulated(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w, &sw, dtypes::fp32),
                                 tape.leaf(bias, &sb, dtypes::fp32));
  tape.backward({y}, {gy});
  CHECK(bits_of(y.value()) == bits_of(floats.y));
  CHECK(bits_of(sx.grad()) == bits_of(floats.gx));
  CHECK(bits_of(sw.grad()) == bits_of(floats.gw));
  CHECK(bits_of(sb.grad()) == bits_of(floats.gb));
}
