#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/spatial.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Place {
  int64_t n, y, x, c;
};
int64_t at(const Shape& s, const Place& p) { return ((p.n * s[1] + p.y) * s[2] + p.x) * s[3] + p.c; }

// For every element of the result the row-major index of its maximum in x, the first of equals; by direct loops.
std::vector<int64_t> first_maxima(const Tensor& x, const PoolOptions& o, int64_t oh, int64_t ow) {
  const std::vector<double> values = x.elements();
  const Shape& s = x.shape();
  std::vector<int64_t> out;
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t oy = 0; oy < oh; ++oy)
      for (int64_t ox = 0; ox < ow; ++ox)
        for (int64_t c = 0; c < s[3]; ++c) {
          int64_t best = -1;
          for (int64_t ky = 0; ky < o.size[0]; ++ky)
            for (int64_t kx = 0; kx < o.size[1]; ++kx) {
              const int64_t y = oy * o.stride[0] + ky - o.padding[0], px = ox * o.stride[1] + kx - o.padding[1];
              if (y < 0 || y >= s[1] || px < 0 || px >= s[2]) continue;
              const int64_t i = at(s, {n, y, px, c});
              if (best < 0 || values[static_cast<size_t>(i)] > values[static_cast<size_t>(best)]) best = i;
            }
          out.push_back(best);
        }
  return out;
}

struct Case {
  Shape shape;
  PoolOptions options;
  int64_t oh, ow;
};

// Options that fit a drawn image; windows overlap, touch, or leave gaps.
Case drawn_case(uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 1, 0};
  uint64_t i = 0;
  const auto pick = [&](int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(draws.bits32(i++) % static_cast<uint32_t>(hi - lo + 1));
  };
  const int64_t channels[] = {1, 3, 15, 16, 63, 64, 65, 128, 130};
  for (;;) {
    Case out;
    out.shape = {pick(0, 3), pick(1, 9), pick(1, 9), channels[pick(0, 8)]};
    for (size_t a = 0; a < 2; ++a) {
      out.options.size[a] = pick(1, 4);
      out.options.stride[a] = pick(1, 5);
      for (const size_t side : {a, a + 2}) out.options.padding[side] = pick(0, out.options.size[a] - 1);
    }
    try {
      const auto [oh, ow] = pool_output("test", out.shape[1], out.shape[2], out.options);
      out.oh = oh;
      out.ow = ow;
      return out;
    } catch (const Error&) {
    }
  }
}

// Numbers of few values, so that ties are the rule.
Tensor with_ties(const Shape& shape, DType dtype, uint64_t seed) {
  std::vector<double> numbers = random_numbers(dtypes::fp32, shape.numel(), seed, -2, 3);
  for (double& v : numbers) v = std::floor(v);
  return Tensor::from_elements(shape, dtype, numbers);
}

void check_case(const Case& c, const Tensor& x, DType grad) {
  const std::vector<int64_t> maxima = first_maxima(x, c.options, c.oh, c.ow);
  const Tensor gy = random_tensor({c.shape[0], c.oh, c.ow, c.shape[3]}, grad, 99);
  AccumulateSink sink;
  Tape tape;
  const Var y = max_pool(tape.leaf(x, &sink, grad), c.options);
  REQUIRE(y.shape() == gy.shape());
  REQUIRE(y.value().dtype() == x.dtype());
  const std::vector<double> values = x.elements(), got = y.value().elements(), g = gy.elements();
  std::vector<double> want(maxima.size());
  for (size_t i = 0; i < maxima.size(); ++i) want[i] = values[static_cast<size_t>(maxima[i])];
  REQUIRE(got == want);
  REQUIRE(max_pool(x, c.options).value().elements() == want);
  tape.backward({y}, {gy});
  // Sums in ascending order of windows, in the dtype of the gradient.
  std::vector<float> narrow(values.size());
  std::vector<double> exact(values.size());
  for (size_t i = 0; i < maxima.size(); ++i) {
    narrow[static_cast<size_t>(maxima[i])] += static_cast<float>(g[i]);
    exact[static_cast<size_t>(maxima[i])] += g[i];
  }
  if (grad == dtypes::fp32) exact.assign(narrow.begin(), narrow.end());
  REQUIRE(sink.grad().elements() == exact);
}

}  // namespace

TEST_CASE("max_pool of floats and its gradient are the direct loops, ties go to the first") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Case c = drawn_case(seed);
    INFO("seed " << seed << ", x " << c.shape);
    check_case(c, with_ties(c.shape, dtypes::fp32, seed), dtypes::fp32);
    check_case(c, random_tensor(c.shape, dtypes::bf16, seed), dtypes::fp32);
    on_cpu([&] { check_case(c, random_tensor(c.shape, dtypes::fp64, seed), dtypes::fp64); });
  }
}

TEST_CASE("max_pool of codes compares codes, keeps scales, and leaves pad bits zero") {
  uint64_t seed = 1000;
  for (const DType dtype : {dtypes::bint1, dtypes::int1, dtypes::ternary, dtypes::int2, dtypes::uint2, dtypes::int3,
                            dtypes::uint5, dtypes::int4, dtypes::uint4, dtypes::int7, dtypes::int8, dtypes::uint8})
    for (int i = 0; i < 40; ++i) {
      const Case c = drawn_case(++seed);
      INFO("seed " << seed << ", x " << c.shape << ' ' << dtype);
      const Tensor x = random_tensor(c.shape, dtype, seed);
      check_case(c, x, dtypes::fp32);
      const Tensor scaled = random_codes(c.shape, dtype, seed, i % 2 ? Granularity{} : Granularity::channel(1));
      const Tensor y = max_pool(scaled, c.options).value();
      REQUIRE(y.quant() == scaled.quant());
      const Tensor made = Tensor::from_elements(y.shape(), dtype, y.elements());
      REQUIRE(made.stride() == y.stride());
      for (int64_t b = 0; b < y.rows() * y.stride(); ++b)
        REQUIRE(static_cast<const uint8_t*>(made.data())[b] == static_cast<const uint8_t*>(y.data())[b]);
    }
}

TEST_CASE("the gradient of max_pool has the same bits on every ISA and number of threads, signs of zeros too") {
  const IsaLevel most = isa_cap();
  const int threads = num_threads();
  const auto gradient = [](const Case& c, const Tensor& x, const Tensor& gy) {
    AccumulateSink sink;
    Tape tape;
    const Var y = max_pool(tape.leaf(x, &sink, dtypes::fp32), c.options);
    tape.backward({y}, {gy});
    const float* const g = sink.grad().as<float>();
    std::vector<uint32_t> bits(static_cast<size_t>(sink.grad().numel()));
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = std::bit_cast<uint32_t>(g[i]);
    return bits;
  };
  for (const Case& c :
       {Case{{3, 28, 28, 64}, {}, 14, 14}, Case{{2, 31, 17, 130}, {{3, 3}, {2, 1}, {1, 1, 1, 1}}, 16, 17},
        Case{{5, 9, 33, 21}, {{2, 3}, {4, 3}, {0, 0, 0, 0}}, 2, 11}})
    for (const DType dtype : {dtypes::bint1, dtypes::int4, dtypes::fp32}) {
      INFO("x " << c.shape << ' ' << dtype);
      const Tensor x = random_tensor(c.shape, dtype, 3);
      const Tensor gy = random_tensor({c.shape[0], c.oh, c.ow, c.shape[3]}, dtypes::fp32, 4);
      for (int64_t i = 0; i < gy.numel(); i += 3) gy.as<float>()[i] = -0.0f;
      const auto want = gradient(c, x, gy);
      for (const uint32_t bits : want) REQUIRE(bits != 0x80000000u);
      for (const IsaLevel level : isa_levels())
        for (const int count : thread_counts({1, 3})) {
          set_isa_cap(std::min(level, most));
          set_num_threads(count);
          const auto got = gradient(c, x, gy);
          set_isa_cap(most);
          set_num_threads(threads);
          REQUIRE(got == want);
        }
    }
}

TEST_CASE("windows of more than 256 pixels keep their taps too") {
  for (const DType dtype : {dtypes::fp32, dtypes::bf16, dtypes::int8, dtypes::uint3, dtypes::bint1}) {
    Case c{{2, 20, 19, 70}, {{18, 17}, {2, 1}, {1, 0, 0, 2}}, 0, 0};
    const auto [oh, ow] = pool_output("test", 20, 19, c.options);
    c.oh = oh;
    c.ow = ow;
    check_case(c, random_tensor(c.shape, dtype, 5), dtypes::fp32);
  }
}

TEST_CASE("a NaN is larger than every number, and the last NaN gets the gradient") {
  const float nan = std::nanf("");
  const Tensor x = Tensor::from({1, nan, 3, nan}, {1, 2, 2, 1});
  AccumulateSink sink;
  Tape tape;
  const Var y = max_pool(tape.leaf(x, &sink, dtypes::fp32), {});
  CHECK(std::isnan(y.value().item()));
  tape.backward({y}, {Tensor::full({1, 1, 1, 1}, dtypes::fp32, 2)});
  CHECK(sink.grad().elements() == std::vector<double>{0, 0, 0, 2});
}

TEST_CASE("max_pool passes the gradient check") {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Case c = drawn_case(seed);
    const Tensor x = random_tensor({1, c.shape[1], c.shape[2], 3}, dtypes::fp64, seed);
    CHECK(gradcheck([&](const auto& v) { return max_pool(v[0], c.options); }, {x}) == "");
  }
}

TEST_CASE("max_pool refuses windows outside the image, and scales that differ within a window") {
  const Tensor x = random_tensor({1, 4, 4, 2}, dtypes::fp32, 1);
  CHECK(error_of([&] {
          max_pool(x, {{2, 2}, {2, 2}, {2, 0, 0, 0}});
        }) ==
        "[max_pool] a window of 2 x 2 pixels is outside the image of 4 x 4 altogether: got padding [2,0,0,0], "
        "expected less than the window's rows. Use less padding");
  CHECK(contains(error_of([&] {
                   max_pool(x, {{2, 2}, {2, 2}, {0, 0, 0, 3}});
                 }),
                 "expected less than the window's columns"));
  CHECK(contains(error_of([&] { max_pool(x, {{5, 2}, {1, 1}, {0, 0, 0, 0}}); }), "[max_pool] no window fits"));
  CHECK(contains(error_of([&] { max_pool(x.reshape({16, 2}), {}); }), "[max_pool] x must be images [n,h,w,c]"));
  const Tensor tokens = random_codes({1, 4, 4, 2}, dtypes::int4, 1, Granularity::token());
  CHECK(contains(error_of([&] { max_pool(tokens, {}); }), "expected per tensor or channel(1)"));
  CHECK(contains(error_of([&] { max_pool(random_tensor({1, 4, 4, 2}, dtypes::nf4, 1), {}); }), "Dequantize it first"));
}
