// Depthwise convolutions against direct loops, and against a product a group. BITGRAD_TEST_SHAPES sets the number of
// drawn cases of a test.
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "ops/depthwise_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/shape_count.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

int case_count() { return shape_count(400); }

void finish_case(DepthwiseDraws& draws, DrawnDepthwise& d) {
  const auto [oh, ow] = conv2d_output(d.s.h, d.s.w, d.c.options);
  const int64_t o = d.s.c * d.s.multiplier;
  if (draws.in(0, 1) == 0) d.c.bias = random_tensor({o}, dtypes::fp32, draws.seed());
  d.c.gy = random_tensor({d.s.n, oh, ow, o}, dtypes::fp32, draws.seed());
  d.c.text = depthwise_text(d.c);
}

Granularity draw_of_w(DepthwiseDraws& draws) {
  return draws.of<Granularity>({Granularity::tensor(), Granularity::channel(0), Granularity::channel(0)});
}

// Codes on both sides, any parameters that make an integer product.
DrawnDepthwise integer_case(uint64_t seed, bool int8_modes) {
  DepthwiseDraws draws(seed);
  DrawnDepthwise d;
  d.s = draw_shape(draws, d.c.options);
  const DType x = draws.of({dtypes::int8, dtypes::uint8, dtypes::int4, dtypes::uint4, dtypes::bint1, dtypes::bint1,
                            dtypes::ternary, dtypes::int3, dtypes::int1});
  const DType w = draws.of({dtypes::int8, dtypes::uint8, dtypes::bint1, dtypes::ternary, dtypes::int4, dtypes::uint2});
  const bool sign = x.kind() == DTypeKind::kSign;
  ZeroKind zero_x = ZeroKind::kNone, zero_w = ZeroKind::kNone;
  if (!sign && draws.in(0, 1) == 0) zero_x = ZeroKind::kInteger;
  if (w.kind() != DTypeKind::kSign && draws.in(0, 2) == 0) zero_w = ZeroKind::kInteger;
  Granularity per = draw_of_w(draws);
  if (!int8_modes) {
    if (draws.in(0, 3) == 0) zero_x = ZeroKind::kReal;
    if (draws.in(0, 3) == 0) zero_w = ZeroKind::kReal;
    if (draws.in(0, 3) == 0) per = Granularity::groups(draws.in(1, 6));
  }
  const Granularity of_x = draws.in(0, 4) == 0 ? Granularity::channel(1) : Granularity::tensor();
  d.c.x = draw_codes(draws, {d.s.n, d.s.h, d.s.w, d.s.c}, x, of_x, zero_x);
  d.c.w = draw_codes(draws, {d.s.c * d.s.multiplier, d.c.options.kernel[0] * d.c.options.kernel[1]}, w, per, zero_w);
  if (sign && zero_x != ZeroKind::kReal) d.c.options.pad_value = static_cast<int>(draws.in(-1, 1));
  if (draws.in(0, 3) == 0) d.c.modes.y = dtypes::bf16;
  if (int8_modes) d.c.modes.gx = d.c.modes.gw = ProductMode::kInt8;
  finish_case(draws, d);
  return d;
}

DrawnDepthwise float_case(uint64_t seed) {
  DepthwiseDraws draws(seed);
  DrawnDepthwise d;
  d.s = draw_shape(draws, d.c.options);
  const auto side = [&](const Shape& shape, const Granularity& per) {
    const DType dtype =
        draws.of({dtypes::fp32, dtypes::fp32, dtypes::bf16, dtypes::int4, dtypes::bint1, dtypes::uint8});
    if (dtype.is_float()) return random_tensor(shape, dtype, draws.seed());
    const ZeroKind zero =
        dtype == dtypes::uint8 ? draws.of({ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) : ZeroKind::kNone;
    return draw_codes(draws, shape, dtype, per, zero);
  };
  d.c.x = side({d.s.n, d.s.h, d.s.w, d.s.c}, draws.of<Granularity>({Granularity::tensor(), Granularity::channel(1)}));
  const Shape w{d.s.c * d.s.multiplier, d.c.options.kernel[0] * d.c.options.kernel[1]};
  d.c.w = d.c.x.dtype().is_float() ? side(w, draw_of_w(draws)) : random_tensor(w, dtypes::fp32, draws.seed());
  if (d.c.x.dtype().is_float() || d.c.x.dtype() == dtypes::bint1)
    d.c.options.pad_value = static_cast<int>(draws.in(-1, 1));
  d.c.modes.gx = draws.of({ProductMode::kFp32, ProductMode::kBf16});
  d.c.modes.gw = draws.of({ProductMode::kFp32, ProductMode::kBf16});
  finish_case(draws, d);
  return d;
}

DepthwiseRun as_groups(const DepthwiseCase& c) {
  const detail::WithoutDepthwise groups;
  return run_depthwise(c);
}

}  // namespace

TEST_CASE("depthwise: integer pairs have the bits of a product a group, int8 gradients too") {
  const StrictBits strict;  // products of real offsets beside pads, and of scales of x per channel, are floats
  for (int i = 0; i < case_count(); ++i) {
    const DrawnDepthwise d = integer_case(static_cast<uint64_t>(i), true);
    INFO(i << ": " << d.c.text);
    REQUIRE(first_wrong(run_depthwise(d.c), as_groups(d.c)) == "");
  }
}

TEST_CASE("depthwise: real offsets and groups along the taps have the bits of a product a group") {
  const StrictBits strict;
  for (int i = 0; i < case_count(); ++i) {
    const DrawnDepthwise d = integer_case(static_cast<uint64_t>(10000 + i), false);
    INFO(i << ": " << d.c.text);
    REQUIRE(unequal("y", run_depthwise(d.c).y, as_groups(d.c).y) == "");
  }
}

TEST_CASE("depthwise: integer sums are those of direct loops in int64") {
  for (int i = 0; i < case_count(); ++i) {
    DrawnDepthwise d = integer_case(static_cast<uint64_t>(20000 + i), true);
    if (d.c.x.quant()->granularity.kind != Granularity::kTensor) continue;
    d.c.modes.y = dtypes::fp32;
    INFO(i << ": " << d.c.text);
    const std::vector<double> x = d.c.x.elements(), w = d.c.w.elements();
    const ScaleMap of_x = d.c.x.scale_map(), of_w = d.c.w.scale_map();
    const int64_t o = d.c.w.rows(), taps = d.c.w.cols();
    std::vector<int64_t> sums(static_cast<size_t>(d.c.gy.numel()));
    each_tap(d.s, d.c.options, [&](int64_t m, int64_t p, int64_t t) {
      for (int64_t j = 0; j < o; ++j) {
        const int64_t zx = of_x.zero == nullptr ? 0 : of_x.zero[0];
        const int64_t zw = of_w.zero == nullptr ? 0 : of_w.zero[of_w.index(j, 0)];
        const int64_t a = p < 0 ? d.c.options.pad_value
                                : static_cast<int64_t>(x[static_cast<size_t>(p * d.s.c + j / d.s.multiplier)]) - zx;
        sums[static_cast<size_t>(m * o + j)] += a * (static_cast<int64_t>(w[static_cast<size_t>(j * taps + t)]) - zw);
      }
    });
    const std::vector<double> y = run_depthwise(d.c).y.elements();
    for (size_t k = 0; k < y.size(); ++k) {
      const auto j = static_cast<int64_t>(k) % o;
      float expected = static_cast<float>(sums[k]) * (of_x.scale[0] * of_w.scale[of_w.index(j, 0)]);
      if (d.c.bias.defined()) expected = expected + d.c.bias.as<float>()[j];
      REQUIRE(y[k] == static_cast<double>(expected));
    }
  }
}

TEST_CASE("depthwise: float sums have the order that numerics.md says, forward and backward") {
  for (int i = 0; i < case_count(); ++i) {
    const DrawnDepthwise d = float_case(static_cast<uint64_t>(30000 + i));
    if (d.s.n == 0) continue;
    INFO(i << ": " << d.c.text);
    REQUIRE(first_wrong(run_depthwise(d.c), in_order(d)) == "");
  }
}

TEST_CASE("depthwise: float sums are those of a product a group but for rounding") {
  for (int i = 0; i < 100; ++i) {
    DrawnDepthwise d = float_case(static_cast<uint64_t>(40000 + i));
    d.c.modes = {};
    INFO(i << ": " << d.c.text);
    const DepthwiseRun a = run_depthwise(d.c), b = as_groups(d.c);
    const auto near = [](const Tensor& p, const Tensor& q, double bound) {
      const std::vector<double> u = p.elements(), v = q.elements();
      for (size_t k = 0; k < u.size(); ++k)
        if (!(std::fabs(u[k] - v[k]) <= bound)) return false;
      return u.size() == v.size();
    };
    // 25 taps, 507 windows, three multiples; values to 320 of uint8, 1 of others
    REQUIRE(near(a.y, b.y, 30 * 350 * 0x1p-22));
    REQUIRE(near(a.gx, b.gx, 80 * 350 * 0x1p-22));
    REQUIRE(near(a.gw, b.gw, 510 * 350 * 0x1p-20));
  }
}

TEST_CASE("depthwise: any number of threads and every ISA give the same bits") {
  const int threads = num_threads();
  const IsaLevel cap = isa_cap();
  for (int i = 0; i < 60; ++i) {
    DrawnDepthwise d = i % 2 == 0 ? float_case(static_cast<uint64_t>(50000 + i))
                                  : integer_case(static_cast<uint64_t>(50000 + i), true);
    INFO(i << ": " << d.c.text);
    const DepthwiseRun first = run_depthwise(d.c);
    std::string text;
    for (const int n : {1, 2, 4}) {
      set_num_threads(n);
      if (text.empty()) text = first_wrong(run_depthwise(d.c), first);
    }
    set_num_threads(threads);
    for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2}) {
      set_isa_cap(std::min(cap, level));
      if (text.empty()) text = first_wrong(run_depthwise(d.c), first);
      set_isa_cap(cap);
    }
    REQUIRE(text == "");
  }
}

TEST_CASE("depthwise: many windows are summed in panels of 512 for any number of threads") {
  DrawnDepthwise d;
  d.s = {3, 40, 37, 19, 2};
  d.c.options.kernel = {3, 3};
  d.c.options.padding = {1, 1, 1, 1};
  d.c.options.groups = 19;
  d.c.x = random_tensor({3, 40, 37, 19}, dtypes::fp32, 1);
  d.c.w = random_tensor({38, 9}, dtypes::fp32, 2);
  d.c.gy = random_tensor({3, 40, 37, 38}, dtypes::fp32, 3);
  const int threads = num_threads();
  for (const int n : {1, 3}) {
    set_num_threads(n);
    const std::string text = first_wrong(run_depthwise(d.c), in_order(d));
    set_num_threads(threads);
    CHECK(text == "");
  }
  d.c.x = random_codes({3, 40, 37, 19}, dtypes::uint8, 4);
  d.c.w = random_codes({38, 9}, dtypes::int8, 5, Granularity::channel(0));
  d.c.modes.gx = d.c.modes.gw = ProductMode::kInt8;
  CHECK(first_wrong(run_depthwise(d.c), as_groups(d.c)) == "");
}

TEST_CASE("depthwise: sums that fp32 might not hold exactly are products of groups") {
  detail::ConvForm form;
  form.groups = form.channels = form.outputs = 4;
  form.geometry.kh = form.geometry.kw = 16;  // 256 taps of 255 * 255
  const auto takes = [&](DType x, DType w, ZeroKind zero) {
    return detail::has_depthwise_forward(random_codes({1, 16, 16, 4}, x, 1, {}, zero),
                                         random_codes({4, 256}, w, 2, {}, zero), form);
  };
  CHECK(takes(dtypes::uint8, dtypes::uint8, ZeroKind::kInteger));
  CHECK(takes(dtypes::int8, dtypes::int8, ZeroKind::kNone));
  form.geometry.kw = 17;
  CHECK_FALSE(takes(dtypes::uint8, dtypes::uint8, ZeroKind::kInteger));
  CHECK(takes(dtypes::int8, dtypes::int8, ZeroKind::kNone));
  form.geometry.kw = 32;
  CHECK(detail::is_depthwise(form));
  form.geometry.kw = 33;
  CHECK_FALSE(detail::is_depthwise(form));
  form.geometry.kw = 3;
  form.channels = 8;
  CHECK_FALSE(detail::is_depthwise(form));
}

TEST_CASE("depthwise: gradients are those of central differences") {
  for (int i = 0; i < 12; ++i) {
    DepthwiseDraws draws(static_cast<uint64_t>(60000 + i));
    Conv2dOptions o;
    DepthwiseShape s = draw_shape(draws, o);
    s.n = std::max<int64_t>(1, s.n);
    s.c = o.groups = std::min<int64_t>(s.c, 4);
    o.pad_value = static_cast<int>(draws.in(-1, 1));
    const Tensor x = random_tensor({s.n, s.h, s.w, s.c}, dtypes::fp64, draws.seed());
    const Tensor w = random_tensor({s.c * s.multiplier, o.kernel[0] * o.kernel[1]}, dtypes::fp64, draws.seed());
    const Tensor bias = random_tensor({s.c * s.multiplier}, dtypes::fp64, draws.seed());
    INFO(i);
    CHECK(gradcheck([&](const std::vector<Var>& in) { return conv2d(in[0], in[1], in[2], o); }, {x, w, bias}) == "");
  }
}

TEST_CASE("depthwise: integer_conv2d writes exact int32 sums") {
  for (int i = 0; i < 40; ++i) {
    DepthwiseDraws draws(static_cast<uint64_t>(70000 + i));
    Conv2dOptions o;
    const DepthwiseShape s = draw_shape(draws, o);
    const Tensor x = random_codes({s.n, s.h, s.w, s.c}, draws.of({dtypes::int8, dtypes::bint1, dtypes::uint4}), 1);
    const Tensor w =
        random_codes({s.c * s.multiplier, o.kernel[0] * o.kernel[1]}, dtypes::int8, 2, Granularity::channel(0));
    const NoGrad off;
    const Tensor y = integer_conv2d(x, w, {}, o).value();
    const detail::WithoutDepthwise groups;
    INFO(i << ' ' << x << ' ' << w);
    CHECK(unequal("y", y, integer_conv2d(x, w, {}, o).value()) == "");
  }
}
