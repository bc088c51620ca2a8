// conv2d of every pair of dtypes in random geometries against direct loops: forward and gradients in every mode, equal
// bits for every instruction set and number of threads. BITGRAD_TEST_SHAPES sets the number of geometries a family.
#include <functional>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "ops/conv_support.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/gradcheck.h"
#include "support/shape_count.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

class Setting {
 public:
  explicit Setting(BitsMode mode) { set_bits_mode(mode); }
  ~Setting() {
    set_bits_mode(before_);
    set_isa_cap(cap_);
    set_num_threads(threads_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  BitsMode before_ = bits_mode();
  IsaLevel cap_ = isa_cap();
  int threads_ = num_threads();
};

struct Family {
  std::vector<DType> x, w;
};
const std::vector<DType> kBits = {dtypes::bint1, dtypes::ternary}, kFloats = {dtypes::fp32, dtypes::bf16},
                         kIntegers = {dtypes::int8, dtypes::int4, dtypes::int2, dtypes::uint4, dtypes::uint8},
                         kWeights = {dtypes::int2, dtypes::int4, dtypes::int8, dtypes::uint4};

std::vector<DType> operator+(std::vector<DType> a, const std::vector<DType>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <typename T>
const T& any_of(Rng& rng, const std::vector<T>& list) {
  return list[static_cast<size_t>(uniform_int(rng, 0, std::ssize(list) - 1))];
}

// Numbers of x or w, codes with or without scales, zero points (of x: codes, as schemes make them) and offsets.
Tensor drawn_operand(Rng& rng, const Shape& shape, DType dtype, const std::vector<Granularity>& granularities,
                     bool plain, bool zero_is_code, bool offsets) {
  const uint64_t seed = rng() % 1000000;
  if (!dtype.is_code() || uniform_int(rng, 0, 4) == 0) return random_tensor(shape, dtype, seed);
  ZeroKind zero = any_of(rng, std::vector<ZeroKind>{ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal});
  if (plain) zero = ZeroKind::kNone;
  if (zero == ZeroKind::kReal && !offsets) zero = ZeroKind::kNone;
  if (dtype.kind() == DTypeKind::kCodebook && zero == ZeroKind::kInteger) zero = ZeroKind::kNone;
  Tensor codes = random_codes(shape, dtype, seed, any_of(rng, granularities), zero);
  if (!zero_is_code || zero != ZeroKind::kInteger) return codes;
  QuantParams params = *codes.quant();
  std::vector<double> zeros = params.zero->elements();
  for (double& z : zeros)
    z = std::clamp(z, static_cast<double>(dtype.info().qmin), static_cast<double>(dtype.info().qmax));
  params.zero = std::make_shared<const Tensor>(Tensor::from_elements(params.zero->shape(), dtypes::int32, zeros));
  return codes.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

// What mode int8 takes of the other operand.
bool takes_int8(const Tensor& t, bool weights) {
  if (!integer_kind(t.dtype())) return false;
  if (!t.quant()) return true;
  const Granularity& g = t.quant()->granularity;
  const bool rows = g.kind == Granularity::kToken || (g.kind == Granularity::kChannel && g.axis == 0);
  const bool columns = g.kind == Granularity::kChannel && g.axis == 1;
  return !t.quant()->offset && (g.kind == Granularity::kTensor || (weights ? rows : columns));
}

const RandomStream kConvDraws{11, Purpose::kGradient, 0xABCDu, 5};

ConvGeometry small_geometry(Rng& rng) { return random_geometry(rng, uniform_int(rng, 0, 63) == 0 ? 3000000 : 150000); }
// One group of stride and dilation 1, large enough to be taken from the images where a unit can.
ConvGeometry plain_geometry(Rng& rng) {
  for (;;) {
    ConvGeometry g;
    g.n = uniform_int(rng, 2, 6);
    g.h = uniform_int(rng, 12, 40);
    g.w = uniform_int(rng, 12, 40);
    g.c = uniform_int(rng, 1, 70);
    g.o = uniform_int(rng, 1, 70);
    for (int64_t& k : g.options.kernel) k = uniform_int(rng, 1, 5);
    for (int64_t& pad : g.options.padding) pad = uniform_int(rng, 0, 4);
    g.options.pad_value = static_cast<int>(uniform_int(rng, -1, 1));
    if (g.windows() > 0 && g.pixels() > 2100 && g.products() > 4500000 && g.products() < 9000000) return g;
  }
}

ConvCase drawn_case(Rng& rng, const Family& family, const std::function<ConvGeometry(Rng&)>& geometry) {
  ConvCase c;
  c.g = geometry(rng);
  const bool plain = c.g.products() > 4500000 && uniform_int(rng, 0, 3) > 0;  // scales without zero points and offsets
  const DType dx = any_of(rng, family.x), dw = any_of(rng, family.w);
  if (dx.kind() != DTypeKind::kSign && !dx.is_float()) c.g.options.pad_value = 0;
  if (plain && dx.is_float()) c.g.options.pad_value = 0;
  const int64_t k = c.g.k();
  std::vector<Granularity> of_w = {Granularity::tensor(), Granularity::channel(0), Granularity::channel(0),
                                   Granularity::token(), Granularity::channel(1)};
  if (k > 1) of_w.push_back(Granularity::groups(uniform_int(rng, 1, k - 1)));
  if (c.g.o > 1 && c.g.options.groups == 1) of_w.push_back(Granularity::groups(uniform_int(rng, 1, c.g.o - 1), 0));
  if (plain) of_w = {Granularity::tensor(), Granularity::channel(0)};
  c.x = drawn_operand(rng, c.g.x_shape(), dx,
                      plain ? std::vector{Granularity::tensor()}
                            : std::vector{Granularity::tensor(), Granularity::tensor(), Granularity::channel(1)},
                      plain, true, c.g.options.pad_value == 0);
  c.w = drawn_operand(rng, c.g.w_shape(), dw, of_w, plain, false, true);
  c.gy = random_tensor(c.g.y_shape(), dtypes::fp32, rng() % 1000000, -2, 2);
  if (uniform_int(rng, 0, 1) == 0) c.bias = random_tensor({c.g.o}, dtypes::fp32, rng() % 1000000);
  const std::vector<ProductMode> all = {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8, ProductMode::kInt8};
  c.modes.gx = any_of(rng, all);
  c.modes.gw = any_of(rng, all);
  if (c.modes.gx == ProductMode::kInt8 && !takes_int8(c.w, true)) c.modes.gx = ProductMode::kFp32;
  if (c.modes.gw == ProductMode::kInt8 && !takes_int8(c.x, false)) c.modes.gw = ProductMode::kFp32;
  if (uniform_int(rng, 0, 1) == 0) c.modes.sr = &kConvDraws;
  return c;
}

bool same_bits(const LinearRun& a, const LinearRun& b) {
  return bits_of(a.y) == bits_of(b.y) && bits_of(a.gx) == bits_of(b.gx) && bits_of(a.gw) == bits_of(b.gw) &&
         (!a.gb.defined() || bits_of(a.gb) == bits_of(b.gb));
}

// Every fourth case in mode fast; the others in strict, under every cap with another number of threads.
void check_family(const Family& family, uint64_t seed, int count,
                  const std::function<ConvGeometry(Rng&)>& geometry = small_geometry) {
  const IsaLevel most = isa_cap();
  int failures = 0;
  for (int i = 0; i < count && failures < 5; ++i) {
    Rng rng(seed * 1000003 + static_cast<uint64_t>(i));
    const ConvCase c = drawn_case(rng, family, geometry);
    const Setting setting(i % 4 == 0 ? BitsMode::kFast : BitsMode::kStrict);
    INFO("case " << i);
    try {
      const LinearRun run = run_conv(c);
      std::string text = wrong(c, run);
      for (const IsaLevel level : isa_levels()) {
        if (i % 4 == 0 || level >= most || !text.empty()) continue;
        set_isa_cap(level);
        set_num_threads(level == IsaLevel::kAvx2 ? 4 : 1);
        if (!same_bits(run, run_conv(c)))
          text = concat(describe(c), ": other bits under cap ", static_cast<int>(level));
      }
      if (!text.empty()) FAIL_CHECK(text);
      failures += !text.empty();
    } catch (const Error& error) {
      ++failures;
      FAIL_CHECK(describe(c) << ": " << error.what());
    }
  }
}

}  // namespace

TEST_CASE("random convolutions of bits with bits are the loops: sums exact, gradients within the bound") {
  check_family({kBits, kBits}, 1, shape_count(250));
}

TEST_CASE("random convolutions of integers are the loops: sums exact, gradients within the bound") {
  check_family({kIntegers + kBits, kWeights + kBits}, 2, shape_count(250));
}

TEST_CASE("random convolutions of floats with weights of one and two bits are the loops within the bound") {
  check_family({kFloats, kBits + std::vector<DType>{dtypes::int2, dtypes::uint2}}, 3, shape_count(120));
}

TEST_CASE("random convolutions of floats with floats, wider codes and codebooks are the loops within the bound") {
  check_family({kFloats, kFloats + std::vector<DType>{dtypes::int4, dtypes::int8, dtypes::nf4, dtypes::uint8}}, 4,
               shape_count(120));
}

TEST_CASE("random convolutions of codes with floats and codebooks are the loops within the bound") {
  check_family(
      {kBits + std::vector<DType>{dtypes::int8, dtypes::uint4, dtypes::nf4}, kFloats + std::vector<DType>{dtypes::nf4}},
      5, shape_count(120));
}

// [cpu]: tiles of the CPU
TEST_CASE("random convolutions that a tile unit can read directly from the images equal the loops, in both modes",
          "[cpu]") {
  const std::vector<DType> x = kIntegers + kBits, w = kWeights + kBits;
  check_family({x, w}, 6, shape_count(24), plain_geometry);
  check_family({{dtypes::fp32}, w}, 7, shape_count(16), plain_geometry);
}

// [cpu]: vectors of the CPU
TEST_CASE("random convolutions that vectors can read directly from the images equal the loops, in both modes",
          "[cpu]") {
  const auto of_signs = [](Rng& rng) {
    ConvGeometry g = plain_geometry(rng);
    g.c = uniform_int(rng, 1, 8) * 8;
    for (int64_t& stride : g.options.stride) stride = uniform_int(rng, 1, 2);
    return g;
  };
  const auto of_few = [](Rng& rng) {
    ConvGeometry g = plain_geometry(rng);
    g.c = uniform_int(rng, 1, 4);
    return g;
  };
  check_family({{dtypes::bint1}, {dtypes::bint1}}, 8, shape_count(24), of_signs);
  check_family({{dtypes::fp32, dtypes::int8, dtypes::uint8}, {dtypes::fp32, dtypes::bint1, dtypes::int4}}, 9,
               shape_count(24), of_few);
}

TEST_CASE("conv2d in fp64 passes the gradient check: strides, dilations, uneven pads, groups, depthwise") {
  Rng rng(6);
  for (int i = 0; i < shape_count(40); ++i) {
    ConvGeometry g;
    do {
      g = random_geometry(rng, 400);
      g.options.pad_value = 0;
    } while (g.x_shape().numel() + g.w_shape().numel() > 150 || g.n == 0);
    const std::vector<Tensor> in = {random_tensor(g.x_shape(), dtypes::fp64, 51),
                                    random_tensor(g.w_shape(), dtypes::fp64, 52),
                                    random_tensor({g.o}, dtypes::fp64, 53)};
    INFO(g.text());
    CHECK(gradcheck([&](const auto& v) { return conv2d(v[0], v[1], Var(), g.options); }, {in[0], in[1]}) == "");
    CHECK(gradcheck([&](const auto& v) { return conv2d(v[0], v[1], v[2], g.options); }, in) == "");
  }
}

// [cpu]: fp64
TEST_CASE("convolutions in fp64 are the loops in double", "[cpu]") {
  Rng rng(7);
  for (int i = 0; i < shape_count(60); ++i) {
    ConvGeometry g = random_geometry(rng);
    g.options.pad_value = 0;
    const Tensor x = random_tensor(g.x_shape(), dtypes::fp64, 61), w = random_tensor(g.w_shape(), dtypes::fp64, 62),
                 gy = random_tensor(g.y_shape(), dtypes::fp64, 63);
    const LinearRun run = run_conv({g, x, w, {}, gy, {}}, dtypes::fp64);
    const std::vector<double> vx = x.elements(), vw = w.elements(), vg = gy.elements(),
                              pads(static_cast<size_t>(g.c), 0.0);
    const auto close = [](const Tensor& got, const std::vector<double>& expected, double terms) {
      const std::vector<double> v = got.elements();
      bool all = v.size() == expected.size();
      for (size_t e = 0; e < expected.size() && all; ++e) all = std::fabs(v[e] - expected[e]) <= 1e-15 * terms;
      return all;
    };
    INFO(g.text());
    CHECK(close(run.y, conv_forward(g, vx, vw, pads), static_cast<double>(g.k())));
    CHECK(close(run.gx, conv_gx(g, vg, vw), static_cast<double>(g.taps() * g.o)));
    CHECK(close(run.gw, conv_gw(g, vg, vx, pads), static_cast<double>(g.pixels() + 1)));
  }
}

// [cpu]: blocks of the CPU
TEST_CASE("results past the blocks of a convolution are the loops, for 1, 2 and 4 threads alike", "[cpu]") {
  // Rows of a forward block, of a gx block, of a gw block (a multiple of 64 and of the table passes), and one beyond.
  const std::array<int64_t, 3> maps[] = {{2, 16, 16}, {1, 21, 24},  {1, 19, 27},
                                         {3, 13, 13}, {16, 16, 16}, {14, 17, 17}};
  const std::pair<DType, DType> pairs[] = {{dtypes::bint1, dtypes::bint1}, {dtypes::int8, dtypes::int4},
                                           {dtypes::fp32, dtypes::bint1},  {dtypes::fp32, dtypes::fp32},
                                           {dtypes::bint1, dtypes::fp32},  {dtypes::uint4, dtypes::ternary}};
  for (const auto& [n, h, w] : maps)
    for (const auto& [dx, dw] : pairs)
      for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kInt8}) {
        ConvCase c;
        c.g = {n, h, w, 5, 18, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}};
        const auto operand = [](const Shape& s, DType d, uint64_t seed, const Granularity& g) {
          return d.is_code() ? random_codes(s, d, seed, g) : random_tensor(s, d, seed);
        };
        c.x = operand(c.g.x_shape(), dx, 71, Granularity::tensor());
        c.w = operand(c.g.w_shape(), dw, 72, Granularity::channel(0));
        c.gy = random_tensor(c.g.y_shape(), dtypes::fp32, 73, -2, 2);
        c.bias = random_tensor({c.g.o}, dtypes::fp32, 74);
        if (dw.is_code()) c.modes.gx = mode;
        if (dx.is_code()) c.modes.gw = mode;
        for (const BitsMode bits : {BitsMode::kFast, BitsMode::kStrict}) {
          const Setting setting(bits);
          set_num_threads(1);
          const LinearRun one = run_conv(c);
          const std::string text = wrong(c, one);
          if (!text.empty()) FAIL_CHECK(text);
          for (const int threads : {2, 4}) {
            set_num_threads(threads);
            if (!same_bits(one, run_conv(c))) FAIL_CHECK(describe(c) << ": other bits of " << threads << " threads");
          }
        }
      }
}
