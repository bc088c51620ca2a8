// requantize and requantize_shift against their formulas, in fp32 and in exact integers, at ties, clamps and the ends
// of int32.
#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int32_t kMin = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();

std::shared_ptr<const Tensor> shared(const Tensor& t) { return std::make_shared<const Tensor>(t); }
std::shared_ptr<const QuantParams> params_of(const Granularity& granularity, std::vector<double> scale,
                                             std::vector<double> zero = {}) {
  QuantParams p;
  p.scheme = "made";
  p.granularity = granularity;
  p.scale = shared(Tensor::from_elements({static_cast<int64_t>(scale.size())}, dtypes::fp32, scale));
  if (!zero.empty()) p.zero = shared(Tensor::from_elements({static_cast<int64_t>(zero.size())}, dtypes::int32, zero));
  return std::make_shared<const QuantParams>(std::move(p));
}

// Ends, powers of two and their neighbours, then drawn numbers of every size.
std::vector<int32_t> hard_numbers(size_t count, uint64_t seed) {
  std::vector<int32_t> out = {0, kMin, kMin + 1, kMax, kMax - 1};
  for (int b = 0; b < 31; ++b)
    for (int d = -1; d <= 1; ++d)
      for (int sign = -1; sign <= 1; sign += 2) out.push_back(static_cast<int32_t>(sign * ((int64_t{1} << b) + d)));
  const RandomStream draws{seed, Purpose::kUser, 0, 0};
  for (uint64_t e = 0; out.size() < count; ++e)
    out.push_back(static_cast<int32_t>(draws.bits32(2 * e)) >> (draws.bits32(2 * e + 1) % 32));
  out.resize(count);
  return out;
}
Tensor int32_tensor(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::empty(shape, dtypes::int32);
  const std::vector<int32_t> q = hard_numbers(static_cast<size_t>(shape.numel()), seed);
  std::copy(q.begin(), q.end(), t.as<int32_t>());
  return t;
}

struct Run {
  Tensor y, gx;
};
template <typename Op>
Run run(const Tensor& x, const Tensor& g, DType grad, Op op) {
  AccumulateSink sink;
  Tape tape;
  const Var y = op(tape.leaf(x, &sink, grad));
  tape.backward({y}, {g});
  return {y.value(), sink.grad()};
}

const DType kResults[] = {dtypes::int8, dtypes::int4, dtypes::uint8, dtypes::uint3, dtypes::int1, dtypes::ternary};

}  // namespace

TEST_CASE("requantize is clamp(rint(float(acc) * M) + z), and passes the gradient where nothing was clamped") {
  const int64_t n = 12, f = 75;
  const Granularity inputs[] = {Granularity::tensor(), Granularity::token(), Granularity::channel(1)};
  uint64_t seed = 2000;
  for (const DType d : kResults)
    for (const Granularity& from : inputs)
      for (const Granularity& to : {Granularity::tensor(), Granularity::token()})
        for (const bool zeros : {false, true}) {
          const int64_t count_in = scale_count(from, n, f), count_out = scale_count(to, n, f);
          const auto s_in = random_numbers(dtypes::fp32, count_in, ++seed, 1e-4, 1e-3),
                     s_out = random_numbers(dtypes::fp32, count_out, ++seed, 0.01, 0.1);
          std::vector<double> z;
          for (int64_t i = 0; zeros && i < count_out; ++i)
            z.push_back(static_cast<double>(d.info().qmin + i % (d.info().qmax - d.info().qmin + 1)));
          const Tensor x = int32_tensor({n, f}, ++seed).with_quant(params_of(from, s_in)),
                       g = random_tensor({n, f}, dtypes::fp32, ++seed);
          const auto out = params_of(to, s_out, z);
          const Run got = run(x, g, dtypes::fp32, [&](const Var& v) { return requantize(v, d, out); });
          REQUIRE(got.y.dtype() == d);
          REQUIRE(got.y.quant() == out);
          const std::vector<double> codes = got.y.elements();
          const float lo = static_cast<float>(d.info().qmin), hi = static_cast<float>(d.info().qmax);
          for (int64_t r = 0; r < n; ++r)
            for (int64_t c = 0; c < f; ++c) {
              const size_t i_in = static_cast<size_t>(count_in == 1   ? 0
                                                      : count_in == n ? r
                                                                      : c),
                           i_out = static_cast<size_t>(count_out == 1 ? 0 : r), e = static_cast<size_t>(r * f + c);
              const float m = static_cast<float>(s_in[i_in]) / static_cast<float>(s_out[i_out]);
              float u = std::rint(static_cast<float>(x.as<int32_t>()[e]) * m);
              if (zeros) u = u + static_cast<float>(z[i_out]);
              const bool passes = u >= lo && u <= hi;
              const float q = u < lo ? lo : u > hi ? hi : u;
              if (codes[e] != q || got.gx.elements()[e] != (passes ? g.elements()[e] : 0.0))
                FAIL(d << " from " << from << " to " << to << ", element " << e << ": code " << codes[e]
                       << ", expected " << q);
              if (e > 300) c = f;
            }
        }
}

TEST_CASE("requantize at exact ties and at both clamps") {
  const Tensor x =
      Tensor::from_elements({1, 10}, dtypes::int32, std::vector<double>{1, 3, -1, -3, 255, 256, 254, -256, -257, -258});
  // M = 1/2: 0.5 1.5 -0.5 -1.5 127.5 128 127 -128 -128.5 -129.
  const Run got = run(x, Tensor::full({1, 10}, dtypes::fp32, 1), dtypes::bf16,
                      [](const Var& v) { return requantize(v, dtypes::int8, params_of({}, {2})); });
  CHECK(got.y.elements() == std::vector<double>{0, 2, 0, -2, 127, 127, 127, -128, -128, -128});
  CHECK(got.gx.elements() == std::vector<double>{1, 1, 1, 1, 0, 0, 1, 1, 1, 0});
  CHECK(got.gx.dtype() == dtypes::bf16);
}

TEST_CASE("an output scale so small that M leaves fp32 saturates every sum but 0") {
  const Tensor q = Tensor::from_elements({1, 5}, dtypes::int32, std::vector<double>{0, 1, -1, kMax, kMin}),
               g = Tensor::full({1, 5}, dtypes::fp32, 1);
  for (const double s_in : {4.0, 1e30}) {
    const Run got = run(q.with_quant(params_of({}, {s_in})), g, dtypes::fp32,
                        [](const Var& v) { return requantize(v, dtypes::int8, params_of({}, {0x1p-126}, {3})); });
    CHECK(got.y.elements() == std::vector<double>{3, 127, -128, 127, -128});
    CHECK(got.gx.elements() == std::vector<double>{1, 0, 0, 0, 0});
  }
}

TEST_CASE("requantize_shift is division by 2^k to nearest even, for k = 1 to 31") {
  for (int k = 1; k <= 31; ++k) {
    const Tensor x = int32_tensor({5, 67}, static_cast<uint64_t>(k)).with_quant(params_of({}, {0.375})),
                 g = random_tensor({5, 67}, dtypes::fp32, 2100);
    const DType d = kResults[k % 6];
    const Run got = run(x, g, dtypes::fp32, [&](const Var& v) { return requantize_shift(v, d, k); });
    CHECK(got.y.quant()->scale->elements() == std::vector<double>{std::ldexp(0.375, k)});
    const std::vector<double> codes = got.y.elements(), gx = got.gx.elements();
    const double lo = static_cast<double>(d.info().qmin), hi = static_cast<double>(d.info().qmax);
    for (size_t i = 0; i < codes.size(); ++i) {
      // Exact in double; rint is to nearest even.
      const double u = std::rint(std::ldexp(static_cast<double>(x.as<int32_t>()[i]), -k));
      const double q = std::min(std::max(u, lo), hi);
      if (codes[i] != q || gx[i] != (u >= lo && u <= hi ? g.elements()[i] : 0.0))
        FAIL("k " << k << ", " << d << ", number " << x.as<int32_t>()[i] << ": code " << codes[i] << ", expected "
                  << q);
    }
  }
}

TEST_CASE("requantize_shift keeps scales per token and channel, and gives bare integers one") {
  const Tensor x = int32_tensor({3, 4}, 2200);
  const Tensor token =
      requantize_shift(Var(x.with_quant(params_of(Granularity::token(), {1, 2, 3}))), dtypes::int8, 4).value();
  CHECK(token.quant()->granularity == Granularity::token());
  CHECK(token.quant()->scale->elements() == std::vector<double>{16, 32, 48});
  const Tensor bare = requantize_shift(Var(x), dtypes::int8, 3).value();
  CHECK(bare.quant()->scale->elements() == std::vector<double>{8});
}

TEST_CASE("pad bits of requantized rows are zero, and empty tensors stay empty") {
  const Tensor y = requantize(Var(int32_tensor({3, 21}, 2300)), dtypes::uint3, params_of({}, {1})).value();
  for (int64_t r = 0; r < 3; ++r) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(y.data()) + r * y.stride(), 8);
    CHECK(word >> 63 == 0);
  }
  for (const Shape& shape : {Shape{0, 4}, Shape{4, 0}}) {
    const Tensor x = Tensor::zeros(shape, dtypes::int32);
    CHECK(requantize(Var(x), dtypes::int8, params_of({}, {1})).shape() == shape);
    CHECK(requantize_shift(Var(x), dtypes::int8, 1).shape() == shape);
  }
}

TEST_CASE("requantize names unsupported arguments") {
  const Tensor x = int32_tensor({2, 3}, 2400);
  const auto error = [](const Tensor& t, DType d, std::shared_ptr<const QuantParams> out) {
    return error_of([&] { requantize(Var(t), d, out); });
  };
  CHECK(contains(error(random_tensor({2, 3}, dtypes::int8, 1), dtypes::int8, params_of({}, {1})),
                 "[requantize] x: got [2,3] int8, expected dense int32"));
  CHECK(contains(error(x, dtypes::bint1, params_of({}, {1})), "dtype of the result: got bint1"));
  CHECK(contains(error(x, dtypes::int32, params_of({}, {1})), "dtype of the result: got int32"));
  CHECK(contains(error(x, dtypes::int8, nullptr), "no params of the result"));
  CHECK(contains(error(x, dtypes::int8, params_of(Granularity::channel(1), {1, 1, 1})),
                 "got per channel(1), expected per tensor or token"));
  CHECK(contains(error(x, dtypes::int8, params_of(Granularity::token(), {1})), "got 1 scales per token, expected 2"));
  CHECK(contains(error(x, dtypes::int8, params_of({}, {0})), "scale 0 of the result is 0, expected a positive number"));
  CHECK(contains(error(x, dtypes::int8, params_of({}, {-1})), "expected a positive number"));
  CHECK(contains(error(x.with_quant(params_of({}, {INFINITY})), dtypes::int8, params_of({}, {1})),
                 "scale of x: got inf, expected a finite number"));
  CHECK(contains(error(x.with_quant(params_of({}, {1}, {5})), dtypes::int8, params_of({}, {1})), "has a zero point"));
  QuantParams offset = *params_of({}, {1});
  offset.offset = offset.scale;
  CHECK(contains(error(x, dtypes::int8, std::make_shared<const QuantParams>(offset)), "have real offsets"));
  CHECK(contains(error_of([&] { requantize_shift(Var(x), dtypes::int8, 0); }), "shift: got 0, expected 1 to 31 bits"));
  CHECK(contains(error_of([&] { requantize_shift(Var(x), dtypes::int8, 32); }), "shift: got 32"));
  CHECK(contains(error_of([&] { requantize_shift(Var(x.with_quant(params_of({}, {1e38}))), dtypes::int8, 31); }),
                 "expected a finite scale"));
}
