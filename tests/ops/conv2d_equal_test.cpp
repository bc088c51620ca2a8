// What a convolution equals: linear on the same rows, linear on the columns of im2col, its integer form, its float
// simulation, its parts.
#include "bitgrad/base/parallel.h"
#include "ops/conv_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/shape_count.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

struct OfDtypes {
  DType x, w;
};
const std::vector<OfDtypes> kPairs = {{dtypes::bint1, dtypes::bint1},  {dtypes::ternary, dtypes::bint1},
                                      {dtypes::int8, dtypes::int4},    {dtypes::uint8, dtypes::int8},
                                      {dtypes::uint4, dtypes::nf4},    {dtypes::fp32, dtypes::bint1},
                                      {dtypes::fp32, dtypes::int4},    {dtypes::fp32, dtypes::fp32},
                                      {dtypes::bf16, dtypes::ternary}, {dtypes::bint1, dtypes::fp32}};

Tensor conv_operand(const Shape& shape, DType dtype, uint64_t seed, const Granularity& granularity) {
  return dtype.is_code() ? random_codes(shape, dtype, seed, granularity) : random_tensor(shape, dtype, seed);
}

// The geometry with operands of this pair: x per tensor, w per channel.
ConvCase case_of(const ConvGeometry& g, const OfDtypes& p, uint64_t seed) {
  ConvCase c;
  c.g = g;
  c.x = conv_operand(g.x_shape(), p.x, seed, Granularity::tensor());
  c.w = conv_operand(g.w_shape(), p.w, seed + 10, Granularity::channel(0));
  c.gy = random_tensor(g.y_shape(), dtypes::fp32, seed + 20, -2, 2);
  c.bias = random_tensor({g.o}, dtypes::fp32, seed + 30);
  return c;
}

bool integers(const ConvCase& c) { return integer_kind(c.x.dtype()) && integer_kind(c.w.dtype()); }

// The same parameters on other numbers.
Tensor with_numbers(const Tensor& like, const Shape& shape, const std::vector<double>& numbers) {
  return Tensor::from_elements(shape, like.dtype(), numbers).with_quant(like.quant());
}

// Linear on the rows of im2col, with the rows of its gx added to their pixels one after the other, in fp32.
struct Columns {
  Tensor y, gw;
  std::vector<double> gx;
};
Columns by_columns(const ConvCase& c) {
  const ConvGeometry& g = c.g;
  const Tensor a = with_numbers(c.x, {g.pixels(), g.k()}, conv_columns(g, c.x.elements(), g.options.pad_value));
  AccumulateSink sa, sw;
  Tape tape;
  const Var y = linear(tape.leaf(a, &sa, dtypes::fp32), tape.leaf(c.w, &sw, dtypes::fp32), Var(c.bias), c.modes);
  tape.backward({y}, {c.gy.reshape({g.pixels(), g.o})});
  const std::vector<double> parts = sa.grad().elements();
  std::vector<float> gx(static_cast<size_t>(g.x_shape().numel()));
  for_taps(g, [&](int64_t m, int64_t tap, int64_t pixel) {
    for (int64_t i = 0; i < g.c && pixel >= 0; ++i) {
      float& sum = gx[static_cast<size_t>(pixel * g.c + i)];
      sum = sum + static_cast<float>(parts[static_cast<size_t>((m * g.taps() + tap) * g.c + i)]);
    }
  });
  return {y.value(), sw.grad(), {gx.begin(), gx.end()}};
}

}  // namespace

// [cpu]: minutes on the emulated device
TEST_CASE("a 1x1 convolution of stride 1 is linear on the pixels, bit for bit, for every pair of dtypes", "[cpu]") {
  const RandomStream draws{11, Purpose::kGradient, 0xABCDu, 5};
  uint64_t seed = 100;
  for (const BitsMode bits : {BitsMode::kStrict, BitsMode::kFast})
    for (const OfDtypes& p : kPairs)
      for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8})
        for (const auto& [n, h, w, ch, o] :
             {std::array<int64_t, 5>{2, 5, 7, 70, 21}, {0, 3, 3, 8, 4}, {37, 1, 1, 130, 18}, {3, 17, 17, 16, 300}}) {
          const BitsMode before = bits_mode();
          set_bits_mode(bits);
          ConvCase c = case_of({n, h, w, ch, o}, p, seed += 50);
          c.modes.gx = mode != ProductMode::kInt8 || integer_kind(p.w) ? mode : ProductMode::kFp32;
          c.modes.gw = mode != ProductMode::kInt8 || integer_kind(p.x) ? mode : ProductMode::kFp32;
          c.modes.sr = seed % 4 == 0 ? &draws : nullptr;
          const LinearRun got = run_conv(c);
          AccumulateSink sx, sw, sb;
          Tape tape;
          const Var y = linear(tape.leaf(c.x, &sx, dtypes::fp32), tape.leaf(c.w, &sw, dtypes::fp32),
                               tape.leaf(c.bias, &sb, dtypes::fp32), c.modes);
          tape.backward({y}, {c.gy});
          INFO(describe(c) << (bits == BitsMode::kFast ? ", fast" : ", strict"));
          CHECK((bits_of(got.y) == bits_of(y.value())));
          CHECK((bits_of(got.gx) == bits_of(sx.grad())));
          CHECK((bits_of(got.gw) == bits_of(sw.grad())));
          CHECK((bits_of(got.gb) == bits_of(sb.grad())));
          set_bits_mode(before);
        }
}

TEST_CASE("a convolution is linear on the columns of im2col: integers in y and in int8 gradients, floats in strict") {
  const StrictBits strict;
  uint64_t seed = 9000;
  for (const OfDtypes& p : kPairs)
    for (const int64_t channels : {3, 16, 64, 70})
      for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kInt8}) {
        ConvGeometry g{2, 9, 8, channels, 34, {.kernel = {3, 2}, .stride = {2, 1}, .dilation = {1, 2}}};
        if (p.x != dtypes::bint1) g.options.padding = {1, 0, 2, 3};
        if (p.x == dtypes::bint1 && channels % 2 == 0) {
          g.options.padding = {1, 2, 0, 3};
          g.options.pad_value = channels == 64 ? 1 : -1;
        }
        ConvCase c = case_of(g, p, seed += 50);
        if (mode == ProductMode::kInt8 && integer_kind(p.x)) c.modes.gw = mode;
        const LinearRun got = run_conv(c);
        const Columns columns = by_columns(c);
        INFO(describe(c));
        CHECK((bits_of(got.y) == bits_of(columns.y)));
        CHECK((got.gw.elements() == columns.gw.elements()));
        CHECK((got.gx.elements() == columns.gx));
      }
}

TEST_CASE("gw past 4032 windows is the fp32 sum of the gw of 4032 windows each, of int8 gradients the exact one") {
  const StrictBits strict;
  const ConvGeometry g{15, 17, 17, 3, 20, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}};
  const int64_t block = 4032, count = g.pixels();
  REQUIRE(count > block);
  for (const OfDtypes& p : kPairs) {
    ConvCase c = case_of(g, p, 12000);
    if (p.x == dtypes::bint1) c.g.options.pad_value = 1;
    const std::vector<double> columns = conv_columns(c.g, c.x.elements(), c.g.options.pad_value);
    const Tensor rows = with_numbers(c.x, {count, g.k()}, columns), gy = c.gy.reshape({count, g.o});
    for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kBf16}) {
      c.modes.gw = mode;
      std::vector<float> expected(static_cast<size_t>(g.w_shape().numel()));
      for (int64_t begin = 0; begin < count; begin += block) {
        const int64_t end = std::min(begin + block, count);
        AccumulateSink sink;
        Tape tape;
        const Var x = rows.row_slice(begin, end);
        tape.backward({linear(x, tape.leaf(c.w, &sink, dtypes::fp32), Var(), c.modes)}, {gy.row_slice(begin, end)});
        for (size_t e = 0; e < expected.size(); ++e) expected[e] = expected[e] + sink.grad().as<float>()[e];
      }
      INFO(describe(c));
      CHECK((run_conv(c).gw.elements() == std::vector<double>(expected.begin(), expected.end())));
    }
    if (!integer_kind(p.x)) continue;
    c.modes.gw = ProductMode::kInt8;
    CHECK(first_difference("gw", run_conv(c).gw, int8_gw(c)) == "");
  }
}

TEST_CASE("integer_conv2d holds the exact sums as int32 under the product of the scales") {
  Rng rng(8);
  const std::vector<DType> of_x = {dtypes::bint1, dtypes::ternary, dtypes::int8, dtypes::uint8, dtypes::uint4},
                           of_w = {dtypes::bint1, dtypes::ternary, dtypes::int4, dtypes::int8};
  for (int i = 0; i < shape_count(200); ++i) {
    ConvGeometry g = random_geometry(rng);
    const DType dx = of_x[static_cast<size_t>(uniform_int(rng, 0, 4))],
                dw = of_w[static_cast<size_t>(uniform_int(rng, 0, 3))];
    if (dx != dtypes::bint1) g.options.pad_value = 0;
    const Granularity of = i % 2 == 0 ? Granularity::tensor() : Granularity::channel(0);
    const Tensor x = random_codes(g.x_shape(), dx, rng() % 1000), w = random_codes(g.w_shape(), dw, rng() % 1000, of),
                 bias = i % 3 == 0 ? random_tensor({g.o}, dtypes::fp32, rng() % 1000, -40, 40) : Tensor();
    const ConvCase c{g, x, w, bias, random_tensor(g.y_shape(), dtypes::fp32, rng() % 1000), {}};
    const Numbers nx{x}, nw{w};
    std::vector<int64_t> sums = conv_forward(g, nx.integers(), nw.integers(), pad_integers(c));
    std::vector<double> expected;
    for (int64_t e = 0; e < std::ssize(sums); ++e) {
      const float s = nx.scale(0, 0) * nw.scale(e % g.o, 0);
      const double b = bias.defined() ? double{std::rint(bias.as<float>()[e % g.o] / s)} : 0;
      expected.push_back(static_cast<double>(sums[static_cast<size_t>(e)]) + b);
    }
    AccumulateSink sx, sw, sb;
    Tape tape;
    const Var b = bias.defined() ? tape.leaf(bias, &sb, dtypes::fp32) : Var();
    const Var y = integer_conv2d(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w, &sw, dtypes::fp32), b, g.options);
    INFO(describe(c));
    REQUIRE(y.dtype() == dtypes::int32);
    REQUIRE(y.value().quant());
    CHECK(y.value().quant()->granularity == (i % 2 == 0 ? Granularity::tensor() : Granularity::channel(1)));
    CHECK(first_difference("y", y.value(), expected) == "");
    const Numbers ny{y.value()};
    for (int64_t j = 0; j < g.o; ++j) CHECK(ny.scale(0, j) == nx.scale(0, 0) * nw.scale(j, 0));
    tape.backward({y}, {c.gy});
    const LinearRun floats = run_conv(c);
    CHECK((bits_of(sx.grad()) == bits_of(floats.gx)));
    CHECK((bits_of(sw.grad()) == bits_of(floats.gw)));
    if (bias.defined()) CHECK((bits_of(sb.grad()) == bits_of(floats.gb)));
  }
}

TEST_CASE("conv2d_simulated is the convolution of the dequantized values, in fp32 and rounded to bf16") {
  const StrictBits strict;
  Rng rng(9);
  for (int i = 0; i < shape_count(60); ++i) {
    ConvGeometry g = random_geometry(rng);
    g.options.pad_value = 0;
    const ConvCase c = case_of(g, kPairs[static_cast<size_t>(i) % kPairs.size()], rng() % 1000);
    const auto values = [](const Tensor& t) { return Tensor::from_elements(t.shape(), dtypes::fp32, t.values()); };
    const LinearRun floats = run_conv({g, values(c.x), values(c.w), c.bias, c.gy, {}});
    AccumulateSink sx, sw, sb;
    Tape tape;
    const Var y = conv2d_simulated(tape.leaf(c.x, &sx, dtypes::fp32), tape.leaf(c.w, &sw, dtypes::fp32),
                                   tape.leaf(c.bias, &sb, dtypes::fp32), g.options);
    tape.backward({y}, {c.gy});
    INFO(describe(c));
    CHECK((bits_of(y.value()) == bits_of(floats.y)));
    CHECK((bits_of(sx.grad()) == bits_of(floats.gx)));
    CHECK((bits_of(sw.grad()) == bits_of(floats.gw)));
    CHECK((bits_of(sb.grad()) == bits_of(floats.gb)));
    const Tensor narrow = conv2d_simulated(Var(c.x), Var(c.w), Var(c.bias), g.options, dtypes::bf16).value();
    CHECK((narrow.elements() == Tensor::from_elements(g.y_shape(), dtypes::bf16, floats.y.elements()).elements()));
  }
}

TEST_CASE("y and gradients in bf16 are the fp32 ones rounded once, sums over microbatches add the unrounded ones") {
  const StrictBits strict;
  Rng rng(10);
  for (int i = 0; i < shape_count(60); ++i) {
    ConvGeometry g = random_geometry(rng);
    g.options.pad_value = 0;
    ConvCase c = case_of(g, kPairs[static_cast<size_t>(i) % kPairs.size()], rng() % 1000);
    if (integer_kind(c.w.dtype()) && i % 2 == 0) c.modes.gx = ProductMode::kInt8;
    if (integer_kind(c.x.dtype()) && i % 2 == 0) c.modes.gw = ProductMode::kInt8;
    const LinearRun wide = run_conv(c);
    ConvCase narrow_case = c;
    narrow_case.modes.y = dtypes::bf16;
    const LinearRun narrow = run_conv(narrow_case, dtypes::bf16);
    const auto rounded = [](const Tensor& t) {
      return Tensor::from_elements(t.shape(), dtypes::bf16, t.elements()).elements();
    };
    INFO(describe(c));
    REQUIRE(narrow.y.dtype() == dtypes::bf16);
    REQUIRE(narrow.gx.dtype() == dtypes::bf16);
    CHECK((narrow.y.elements() == rounded(wide.y)));
    // The edge of a bf16 result carries its gradient in fp32 unless something asks otherwise.
    CHECK((narrow.gx.elements() == rounded(wide.gx)));
    CHECK((narrow.gw.elements() == rounded(wide.gw)));
    AccumulateSink sx, sw;
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      Tape tape;
      const Var y =
          conv2d(tape.leaf(c.x, &sx, dtypes::fp32), tape.leaf(c.w, &sw, dtypes::fp32), Var(), g.options, c.modes);
      tape.backward({y}, {c.gy});
    }
    for (const auto& [one, sum] : {std::pair{wide.gx, sx.grad()}, std::pair{wide.gw, sw.grad()}}) {
      bool twice = true;
      for (int64_t e = 0; e < one.numel(); ++e) twice = twice && sum.as<float>()[e] == one.as<float>()[e] * 2;
      CHECK(twice);
    }
  }
}

TEST_CASE("a batch of integers is its images: y, and gx in int8, whose scale is the image's own") {
  const StrictBits strict;
  Rng rng(11);
  for (int i = 0; i < shape_count(60); ++i) {
    ConvGeometry g = random_geometry(rng);
    g.options.pad_value = 0;
    const OfDtypes& p = kPairs[static_cast<size_t>(i) % kPairs.size()];
    ConvCase c = case_of(g, p, rng() % 1000);
    if (integer_kind(p.w)) c.modes.gx = ProductMode::kInt8;
    const LinearRun whole = run_conv(c);
    INFO(describe(c));
    for (int64_t image = 0; image < g.n && integer_kind(p.w); ++image) {
      const auto part = [&](const Tensor& t) { return slice(Var(t), 0, image, image + 1).value(); };
      ConvCase one = c;
      one.g.n = 1;
      one.x = part(c.x);
      one.gy = part(c.gy);
      const LinearRun run = run_conv(one);
      CHECK((bits_of(run.gx) == bits_of(part(whole.gx))));
      if (integers(c)) CHECK((bits_of(run.y) == bits_of(part(whole.y))));
    }
  }
}

TEST_CASE("views of images are operands like any other") {
  const Tensor big = random_codes({6, 7, 5, 64}, dtypes::int4, 41), w = random_codes({9, 9 * 64}, dtypes::int2, 42);
  ConvCase c;
  c.g = {3, 7, 5, 64, 9, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}};
  c.x = slice(Var(big), 0, 2, 5).value();
  c.w = w;
  c.gy = random_tensor(c.g.y_shape(), dtypes::fp32, 43);
  CHECK(wrong(c, run_conv(c)) == "");
  const Tensor tall = random_codes({15, 9 * 64}, dtypes::int2, 44, Granularity::channel(0));
  c.w = tall.row_slice(4, 13);
  CHECK(wrong(c, run_conv(c)) == "");
}

// [cpu]: layouts of the CPU
TEST_CASE("derived layouts of the weights change no bit of a convolution, in groups either", "[cpu]") {
  const StrictBits strict;
  for (const DType dx : {dtypes::bint1, dtypes::ternary, dtypes::int8, dtypes::fp32})
    for (const DType dw : {dtypes::bint1, dtypes::ternary, dtypes::int8})
      for (const int64_t groups : {1, 3}) {
        ConvCase c =
            case_of({2, 7, 6, 66, 48, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}, .groups = groups}}, {dx, dw}, 73);
        if (dx != dtypes::fp32 && groups == 1) c.modes.gx = c.modes.gw = ProductMode::kInt8;
        ConvCase rich = c;
        rich.w = c.w.clone(MemoryKind::kValue);
        for (const Layout layout : all_layouts())
          if (layout != layouts::canonical && layout.info().supports(dw)) {
            Tensor derived = Tensor::empty_layout(c.w.shape(), dw, layout, MemoryKind::kDerived);
            layout.info().pack(dw, c.w.rows(), c.w.cols(), c.w.data(), c.w.stride(), derived.data());
            rich.w.attach_layout(derived);
          }
        const LinearRun a = run_conv(c), b = run_conv(rich);
        INFO(describe(c));
        CHECK((bits_of(a.y) == bits_of(b.y)));
        CHECK((bits_of(a.gx) == bits_of(b.gx)));
        CHECK((bits_of(a.gw) == bits_of(b.gw)));
      }
}
