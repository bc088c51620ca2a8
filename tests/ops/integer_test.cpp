// integer_linear and integer_relu against sums of int64 written here, and a network of integers beside its float twin.
#include <cmath>
#include <limits>

#include "ops/linear_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Pair {
  Granularity x, w, y;
};
const Pair kPairs[] = {{Granularity::tensor(), Granularity::tensor(), Granularity::tensor()},
                       {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1)},
                       {Granularity::token(), Granularity::tensor(), Granularity::token()}};

float scale_at(const Tensor& t, int64_t r, int64_t c) {
  const ScaleMap map = t.scale_map();
  return map.scale ? map.scale[map.index(r, c)] : 1.0f;
}

std::vector<int64_t> sums(const Tensor& x, const Tensor& w) {
  const auto qx = x.elements(), qw = w.elements();
  std::vector<int64_t> out;
  for (int64_t i = 0; i < x.rows(); ++i)
    for (int64_t j = 0; j < w.rows(); ++j) {
      int64_t acc = 0;
      for (int64_t k = 0; k < x.cols(); ++k)
        acc += static_cast<int64_t>(qx[static_cast<size_t>(i * x.cols() + k)]) *
               static_cast<int64_t>(qw[static_cast<size_t>(j * x.cols() + k)]);
      out.push_back(acc);
    }
  return out;
}

Tensor with_scale(const Tensor& t, std::vector<double> scale, const Granularity& granularity = {}) {
  QuantParams params;
  params.scheme = "made";
  params.granularity = granularity;
  params.scale =
      std::make_shared<const Tensor>(Tensor::from_elements({static_cast<int64_t>(scale.size())}, dtypes::fp32, scale));
  return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

}  // namespace

TEST_CASE("integer_linear keeps exact sums as int32 and multiplies the scales") {
  const std::pair<DType, DType> dtypes_of[] = {{dtypes::int8, dtypes::int8},
                                               {dtypes::uint8, dtypes::int4},
                                               {dtypes::bint1, dtypes::bint1},
                                               {dtypes::ternary, dtypes::bint1},
                                               {dtypes::uint2, dtypes::ternary}};
  uint64_t seed = 1500;
  for (const Pair& p : kPairs)
    for (const auto& [dx, dw] : dtypes_of) {
      const Tensor x = random_codes({11, 130}, dx, ++seed, p.x), w = random_codes({21, 130}, dw, ++seed, p.w);
      const Tensor y = integer_linear(Var(x), Var(w)).value();
      const std::vector<int64_t> expected = sums(x, w);
      REQUIRE(y.dtype() == dtypes::int32);
      REQUIRE(y.quant()->granularity == p.y);
      for (int64_t i = 0; i < y.numel(); ++i)
        if (y.as<int32_t>()[i] != expected[static_cast<size_t>(i)]) FAIL("element " << i << " of " << x << ' ' << w);
      for (int64_t i = 0; i < 11; ++i)
        for (int64_t j = 0; j < 21; ++j)
          if (scale_at(y, i, j) != scale_at(x, i, 0) * scale_at(w, j, 0)) FAIL("scale " << i << ' ' << j);
    }
}

TEST_CASE("the bias is rounded to the scale of the sums, ties to even, and the total is clamped to int32") {
  const Tensor x = with_scale(Tensor::from_elements({2, 1}, dtypes::int8, std::vector<double>{1, -1}), {0.5}),
               w = with_scale(Tensor::from_elements({4, 1}, dtypes::int8, std::vector<double>{1, 2, 3, 0}),
                              {1, 2, 4, 8}, Granularity::channel(0));
  // Scales 0.5, 1, 2, 4: biases in them 1.5, 2.5, -0.5, -3.
  const Tensor bias = Tensor::from_elements({4}, dtypes::fp32, std::vector<double>{0.75, 2.5, -1, -12});
  CHECK(integer_linear(Var(x), Var(w), Var(bias)).value().elements() == std::vector<double>{3, 4, 3, -3, 1, 0, -3, -3});
  const Tensor one = with_scale(Tensor::from_elements({1, 1}, dtypes::int8, std::vector<double>{127}), {1}),
               both = with_scale(Tensor::from_elements({2, 1}, dtypes::int8, std::vector<double>{127, -127}), {1});
  const Tensor large = Tensor::from_elements({2}, dtypes::fp32, std::vector<double>{0x1.fffffep30, -0x1p31 + 128});
  CHECK(integer_linear(Var(one), Var(both), Var(large)).value().elements() == std::vector<double>{0x1p31 - 1, -0x1p31});
}

TEST_CASE("a bias past int32, as behind an input of zeros, saturates, and its gradient passes") {
  constexpr double kMin = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();
  const double eps = std::ldexp(1.0, -126);
  const Tensor x = with_scale(Tensor::zeros({2, 3}, dtypes::int8), {eps}), w = Tensor::zeros({5, 3}, dtypes::int8),
               bias = Tensor::from_elements({5}, dtypes::fp32, std::vector<double>{1, -1, 0, 5 * eps, 0x1p-95}),
               g = random_tensor({2, 5}, dtypes::fp32, 1690);
  const std::vector<double> row = {kMax, kMin, 0, 5, kMax};
  std::vector<double> expected = row;
  expected.insert(expected.end(), row.begin(), row.end());
  AccumulateSink sink;
  Tape tape;
  const Var y = integer_linear(Var(x), Var(with_scale(w, {1})), tape.leaf(bias, &sink, dtypes::fp32));
  CHECK(y.value().elements() == expected);
  tape.backward({y}, {g});
  for (size_t j = 0; j < 5; ++j) CHECK(sink.grad().as<float>()[j] == g.as<float>()[j] + g.as<float>()[5 + j]);
  // Sums are added to it and clamped once more: here 127 * 127 * 2.
  const Tensor max = with_scale(Tensor::full({1, 2}, dtypes::int8, 127), {eps});
  CHECK(integer_linear(Var(max), Var(max), Var(Tensor::full({1}, dtypes::fp32, -1))).value().elements() ==
        std::vector<double>{kMin + 2 * 127 * 127});
  // The product of the scales underflows to 0: a bias of 0 stays 0.
  const Var none = integer_linear(Var(x), Var(with_scale(w, {0x1p-30})), Var(bias));
  CHECK(none.value().quant()->scale->elements() == std::vector<double>{0});
  CHECK(none.value().row_slice(0, 1).elements() == std::vector<double>{kMax, kMin, 0, kMax, kMax});
}

TEST_CASE("the backward of integer_linear is that of linear on the same values, with the bias") {
  const StrictBits strict;
  uint64_t seed = 1600;
  for (const Pair& p : kPairs) {
    const Tensor x = random_codes({9, 70}, dtypes::int8, ++seed, p.x),
                 w = random_codes({6, 70}, dtypes::int4, ++seed, p.w), gy = random_tensor({9, 6}, dtypes::fp32, ++seed);
    const bool with_bias = p.x.kind == Granularity::kTensor;
    const Tensor bias = with_bias ? random_tensor({6}, dtypes::fp32, ++seed) : Tensor();
    const LinearRun expected = run_linear(x, w, gy, dtypes::bf16, dtypes::fp32, bias);
    AccumulateSink sx, sw, sb;
    Tape tape;
    const Var y = integer_linear(tape.leaf(x, &sx, dtypes::bf16), tape.leaf(w, &sw, dtypes::fp32),
                                 with_bias ? tape.leaf(bias, &sb, dtypes::fp32) : Var());
    tape.backward({y}, {gy});
    CHECK(bits_of(sx.grad()) == bits_of(expected.gx));
    CHECK(bits_of(sw.grad()) == bits_of(expected.gw));
    if (with_bias) CHECK(bits_of(sb.grad()) == bits_of(expected.gb));
  }
}

TEST_CASE("integer_linear at its limits: the largest sum fits, one product more is an error, empty shapes work") {
  const auto ends = [](int64_t k, DType d, double q) { return Tensor::full({1, k}, d, q); };
  const int64_t limit = 131071;
  const Tensor y = integer_linear(Var(ends(limit, dtypes::int8, -128)), Var(ends(limit, dtypes::int8, -128))).value();
  CHECK(y.as<int32_t>()[0] == limit * 16384);
  CHECK(
      error_of([&] { integer_linear(Var(ends(limit + 1, dtypes::int8, 1)), Var(ends(limit + 1, dtypes::int8, 1))); }) ==
      "[integer_linear] sums of 131072 products of int8 and int8 overflow int32: got 131072 features, expected at most "
      "131071. Use `linear`, which sums in int64.");
  CHECK(
      contains(error_of([&] { integer_linear(Var(ends(65794, dtypes::uint8, 1)), Var(ends(65794, dtypes::int8, 1))); }),
               "expected at most 65793"));
  for (const auto& [n, f, o] : {std::tuple<int64_t, int64_t, int64_t>{0, 3, 2}, {2, 0, 3}, {2, 3, 0}}) {
    const Tensor empty =
        integer_linear(Var(random_codes({n, f}, dtypes::int8, 1)), Var(random_codes({o, f}, dtypes::int8, 2))).value();
    CHECK(empty.shape() == Shape{n, o});
    CHECK(empty.elements() == std::vector<double>(static_cast<size_t>(n * o), 0.0));
  }
}

TEST_CASE("integer_linear names unsupported arguments") {
  const Tensor x = random_codes({2, 8}, dtypes::int8, 1700), w = random_codes({3, 8}, dtypes::int8, 1701);
  const auto error = [](const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
    return error_of([&] { integer_linear(Var(a), Var(b), bias.defined() ? Var(bias) : Var()); });
  };
  CHECK(contains(error(random_codes({2, 8}, dtypes::uint8, 1702, {}, ZeroKind::kInteger), w),
                 "[integer_linear] x [2,8] uint8 has zero points, expected none"));
  CHECK(contains(error(x, random_codes({3, 8}, dtypes::int8, 1703, {}, ZeroKind::kReal)),
                 "w [3,8] int8 has real offsets"));
  CHECK(contains(error(x, random_codes({3, 8}, dtypes::int8, 1704, Granularity::groups(4))),
                 "w: got scales per group(4), expected one per tensor, or per channel(0)"));
  CHECK(contains(error(random_codes({2, 8}, dtypes::int8, 1705, Granularity::channel(1)), w),
                 "expected one per tensor, or per token"));
  CHECK(contains(error(random_codes({2, 8}, dtypes::int8, 1706, Granularity::token()),
                       random_codes({3, 8}, dtypes::int8, 1707, Granularity::channel(0))),
                 "int32 has no scale for each element"));
  CHECK(contains(error(random_tensor({2, 8}, dtypes::fp32, 1708), w), "Apply `quantize` first"));
  CHECK(contains(error(random_tensor({2, 8}, dtypes::int32, 1709), w), "x: got [2,8] int32"));
  CHECK(contains(error(x, random_codes({3, 7}, dtypes::int8, 1710)), "x has 8 features, w expects 7"));
  CHECK(contains(error(x, w, random_tensor({2}, dtypes::fp32, 1711)), "bias must be [3] fp32, got [2] fp32"));
  CHECK(contains(
      error(random_codes({2, 8}, dtypes::int8, 1712, Granularity::token()), w, random_tensor({3}, dtypes::fp32, 1713)),
      "a bias needs x per tensor"));
  CHECK(contains(error(x, w, Tensor::full({3}, dtypes::fp32, NAN)), "bias[0] is nan"));
}

TEST_CASE("integer_relu keeps the scale, and passes the gradient where the integer is positive") {
  constexpr double kMin = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();
  std::vector<double> numbers = {kMin, -1, 0, 1, kMax};
  for (int i = 0; i < 65; ++i) numbers.push_back(i % 3 - 1);
  const Tensor q = with_scale(Tensor::from_elements({2, 35}, dtypes::int32, numbers), {0.25}),
               g = random_tensor({2, 35}, dtypes::fp32, 1800);
  AccumulateSink sink;
  Tape tape;
  const Var y = integer_relu(tape.leaf(q, &sink, dtypes::fp32));
  tape.backward({y}, {g});
  CHECK(y.value().quant() == q.quant());
  for (size_t i = 0; i < numbers.size(); ++i) {
    CHECK(y.value().elements()[i] == std::max(numbers[i], 0.0));
    CHECK(sink.grad().elements()[i] == (numbers[i] > 0 ? g.elements()[i] : 0.0));
  }
  CHECK(contains(error_of([&] {
                   integer_relu(Var(random_codes({2, 2}, dtypes::int8, 1801)));
                 }),
                 "[integer_relu] x: got [2,2] int8"));
  CHECK(contains(error_of([&] {
                   integer_relu(Var(random_codes({2, 2}, dtypes::int32, 1802, {}, ZeroKind::kInteger)));
                 }),
                 "has a zero point"));
}

TEST_CASE("int32 sums dequantize to float(q) * s, one scale per row, column or tensor") {
  uint64_t seed = 1850;
  for (const Pair& p : kPairs) {
    const Tensor x = random_codes({5, 40}, dtypes::int8, ++seed, p.x),
                 w = random_codes({7, 40}, dtypes::int8, ++seed, p.w);
    AccumulateSink sink;
    Tape tape;
    const Var y = integer_linear(tape.leaf(x, &sink, dtypes::fp32), Var(w)), v = dequantize(y);
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t j = 0; j < 7; ++j)
        if (v.value().as<float>()[i * 7 + j] !=
            static_cast<float>(y.value().as<int32_t>()[i * 7 + j]) * scale_at(y.value(), i, j))
          FAIL("element " << i << ' ' << j);
    tape.backward({v}, {Tensor::full({5, 7}, dtypes::fp32, 1)});
    CHECK(sink.filled());
  }
}

TEST_CASE("a network that stays in integers has the gradients of the float network with the same masks") {
  const StrictBits strict;
  const Tensor x = with_scale(random_tensor({6, 20}, dtypes::int8, 1900), {0.01}),
               w1 = with_scale(random_tensor({30, 20}, dtypes::int4, 1901), {0.02}),
               w2 = with_scale(random_tensor({4, 30}, dtypes::int4, 1902), {0.03});
  QuantParams hidden;
  hidden.scheme = "made";
  hidden.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, 0.02));
  const auto out = std::make_shared<const QuantParams>(hidden);
  const Tensor gy = random_tensor({6, 4}, dtypes::fp32, 1903);

  AccumulateSink sx, s1, s2;
  Tape tape;
  const Var sums1 = integer_relu(integer_linear(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w1, &s1, dtypes::fp32)));
  const Var codes = requantize(sums1, dtypes::uint4, out);
  const Var y = dequantize(integer_linear(codes, tape.leaf(w2, &s2, dtypes::fp32)));
  CHECK(sums1.dtype() == dtypes::int32);
  CHECK(codes.dtype() == dtypes::uint4);
  tape.backward({y}, {gy});

  // The twin: the same values in double; a hidden element passes where 0 < q and the code before its clamp is in 0
  // .. 15.
  const auto vx = x.values(), v1 = w1.values(), v2 = w2.values(), h = codes.value().values(), g = gy.elements();
  const std::vector<int64_t> acc = sums(x, w1);
  std::vector<double> gh(6 * 30), gx(6 * 20), g1(30 * 20), g2(4 * 30);
  int64_t passed = 0;
  for (size_t i = 0; i < 6; ++i)
    for (size_t k = 0; k < 30; ++k) {
      for (size_t j = 0; j < 4; ++j) {
        gh[i * 30 + k] += g[i * 4 + j] * v2[j * 30 + k];
        g2[j * 30 + k] += g[i * 4 + j] * h[i * 30 + k];
      }
      const int64_t a = acc[i * 30 + k];
      const float before = std::rint(static_cast<float>(a) * ((0.01f * 0.02f) / 0.02f));
      const bool passes = a > 0 && before <= 15;
      passed += passes;
      if (!passes) gh[i * 30 + k] = 0;
      for (size_t c = 0; c < 20; ++c) {
        gx[i * 20 + c] += gh[i * 30 + k] * v1[k * 20 + c];
        g1[k * 20 + c] += gh[i * 30 + k] * vx[i * 20 + c];
      }
    }
  CHECK(passed > 30);
  CHECK(passed < 150);
  const auto close = [](const Tensor& got, const std::vector<double>& want) {
    double worst_error = 0;
    for (size_t i = 0; i < want.size(); ++i)
      worst_error = std::max(worst_error, std::fabs(got.elements()[i] - want[i]));
    return worst_error < 1e-5;
  };
  CHECK(close(sx.grad(), gx));
  CHECK(close(s1.grad(), g1));
  CHECK(close(s2.grad(), g2));
}
