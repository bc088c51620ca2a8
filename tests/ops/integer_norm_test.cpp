// Batch norm of int32 with a scale: statistics from exact integer sums.
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

__extension__ using Wide = __int128;

// Integers up to `most` around `center`, with a scale per tensor or per column.
Tensor integers(const Shape& shape, int64_t most, int64_t center, bool per_column, uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 4, 0};
  std::vector<double> q(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < q.size(); ++i) {
    const uint64_t bits = draws.bits32(2 * i) | static_cast<uint64_t>(draws.bits32(2 * i + 1)) << 32;
    q[i] = static_cast<double>(center + static_cast<int64_t>(bits % static_cast<uint64_t>(2 * most + 1)) - most);
  }
  QuantParams params;
  params.scheme = "product";
  params.granularity = per_column ? Granularity::channel(1) : Granularity::tensor();
  const int64_t count = per_column ? shape.cols() : 1;
  params.scale = std::make_shared<const Tensor>(random_tensor({count}, dtypes::fp32, seed + 1, 0.001, 0.01));
  return Tensor::from_elements(shape, dtypes::int32, q)
      .with_quant(std::make_shared<const QuantParams>(std::move(params)));
}
float scale_at(const Tensor& x, int64_t c) {
  const Tensor& s = *x.quant()->scale;
  return s.as<float>()[s.numel() == 1 ? 0 : c];
}

struct Exact {
  std::vector<double> mean, var;  // of the values, in long double from exact sums
};
Exact exact_statistics(const Tensor& x) {
  Exact out;
  const int64_t n = x.rows();
  for (int64_t c = 0; c < x.cols(); ++c) {
    Wide sum = 0, squares = 0;
    for (int64_t r = 0; r < n; ++r) {
      const Wide q = x.as<int32_t>()[r * x.cols() + c];
      sum += q;
      squares += q * q;
    }
    const long double s = scale_at(x, c), count = static_cast<long double>(n);
    out.mean.push_back(static_cast<double>(static_cast<long double>(sum) / count * s));
    const Wide spread = squares * n - sum * sum;  // n^2 var, exact
    out.var.push_back(static_cast<double>(static_cast<long double>(spread) / count / count * s * s));
  }
  return out;
}

NormOptions options_for(int64_t count, bool training = true) {
  NormOptions o;
  o.training = training;
  o.momentum = 1;  // the running statistics are those of the batch
  o.running_mean = random_tensor({count}, dtypes::fp32, 31);
  o.running_var = random_tensor({count}, dtypes::fp32, 32, 0.5, 2);
  return o;
}

// Within a last place of fp32: the result is a number in double, rounded once.
bool close(double got, double want) { return std::fabs(got - want) <= std::fabs(want) * 0x1p-23; }

struct Ran {
  Tensor y;
  std::vector<Tensor> g;
};
Ran run(const Tensor& x, const Tensor& gamma, const Tensor& beta, const NormOptions& o) {
  AccumulateSink sinks[3];
  Tape tape;
  const Var y = batch_norm(tape.leaf(x, &sinks[0], dtypes::fp32), tape.leaf(gamma, &sinks[1], dtypes::fp32),
                           tape.leaf(beta, &sinks[2], dtypes::fp32), o);
  tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 77)});
  return {y.value(), {sinks[0].grad(), sinks[1].grad(), sinks[2].grad()}};
}

// The first values of a column in the formula of numerics.md, from the given mean and variance.
float normalized(const Tensor& x, int64_t i, float mean, float var, const NormOptions& o, const Tensor& gamma,
                 const Tensor& beta) {
  const int64_t c = i % x.cols();
  const float v = static_cast<float>(x.as<int32_t>()[i]) * scale_at(x, c), inv = 1.0f / std::sqrt(var + o.eps);
  return ((v - mean) * inv) * gamma.as<float>()[c] + beta.as<float>()[c];
}

struct Case {
  Shape shape;
  int64_t most, center;
};
const std::vector<Case> kCases = {
    {{5, 3}, 100, 0},
    {{1, 7}, 1000, 5},
    {{256, 65}, 32767, 0},
    {{257, 64}, 40000, 0},
    {{513, 3}, 100, 2000000},
    {{4, 5, 6, 17}, 300, -7},
    {{520, 3}, 100, 500000000},
    {{300, 2}, 2147483647, 0},
    {{600, 5}, 100, 2147483000},
    {{1023, 4}, 4194303, 0},
    {{1024, 4}, 4194304, 0},
    {{700, 130}, 4194305, -50},
    {{2, 1}, 1, 0},
};

}  // namespace

TEST_CASE("statistics of integers are those of exact sums, rounded once") {
  uint64_t seed = 0;
  for (const Case& c : kCases)
    for (const bool per_column : {false, true}) {
      const Tensor x = integers(c.shape, c.most, c.center, per_column, ++seed);
      INFO(c.shape << ", up to " << c.most << " around " << c.center);
      const int64_t f = x.cols(), n = x.rows();
      const Tensor gamma = random_tensor({f}, dtypes::fp32, 1, 0.5, 1.5), beta = random_tensor({f}, dtypes::fp32, 2);
      const NormOptions o = options_for(f);
      if (n == 1) {
        CHECK(contains(error_of([&] { batch_norm(x, gamma, beta, o); }), "the variance of one value is not defined"));
        continue;
      }
      const Exact want = exact_statistics(x);
      const Tensor y = batch_norm(x, gamma, beta, o).value();
      REQUIRE(y.dtype() == dtypes::fp32);
      REQUIRE(y.shape() == x.shape());
      REQUIRE(!y.quant());
      for (int64_t j = 0; j < f; ++j) {
        const auto at = static_cast<size_t>(j);
        REQUIRE(close(o.running_mean.as<float>()[j], want.mean[at]));
        const double unbiased =
            want.var[at] * static_cast<double>(n) / static_cast<double>(std::max<int64_t>(n - 1, 1));
        REQUIRE(close(o.running_var.as<float>()[j], unbiased));
      }
      for (int64_t i = 0; i < x.numel(); ++i) {
        const auto j = static_cast<size_t>(i % f);
        const auto mean = static_cast<float>(want.mean[j]), var = static_cast<float>(want.var[j]);
        const double v = static_cast<double>(x.as<int32_t>()[i]) * static_cast<double>(scale_at(x, i % f));
        const double wanted = normalized(x, i, mean, var, o, gamma, beta);
        // Where the statistics are a last place off; far from 0 the difference of value and mean has few digits.
        const double inv = 1 / std::sqrt(want.var[j] + static_cast<double>(o.eps));
        const double slack = 1e-6 * (2 + std::fabs(wanted)) + 3 * std::fabs(v) * 0x1p-23 * inv * 1.5;
        REQUIRE(std::fabs(static_cast<double>(y.as<float>()[i]) - wanted) <= slack);
      }
    }
}

TEST_CASE("batch norm of integers in evaluation, and its backward, have the bits of that of the values") {
  uint64_t seed = 100;
  for (const Case& c : kCases)
    for (const bool training : {false, true}) {
      const Tensor x = integers(c.shape, c.most, c.center, seed % 2 == 0, seed);
      ++seed;
      INFO(c.shape << ", up to " << c.most << (training ? ", training" : ", evaluation"));
      const int64_t f = x.cols();
      const Tensor gamma = random_tensor({f}, dtypes::fp32, 1, 0.5, 1.5), beta = random_tensor({f}, dtypes::fp32, 2);
      const NormOptions o = options_for(f, training);
      if (training && x.rows() == 1) continue;  // refused, above
      const Ran got = run(x, gamma, beta, o);
      const Tensor values = dequantize(x).value();
      if (!training) {
        const Ran want = run(values, gamma, beta, options_for(f, false));
        REQUIRE(got.y.elements() == want.y.elements());
        for (size_t i = 0; i < 3; ++i) REQUIRE(got.g[i].elements() == want.g[i].elements());
        continue;
      }
      // In training the statistics differ from the two passes in floats by their rounding: the backward is that of y.
      const Ran want = run(values, gamma, beta, options_for(f, true));
      if (c.center > 1000000 || c.most > 1000000 || x.rows() < 3) continue;
      for (size_t i = 0; i < 3; ++i) {
        const std::vector<double> p = got.g[i].elements(), q = want.g[i].elements();
        double largest = 1e-3;
        for (const double v : q) largest = std::max(largest, std::fabs(v));
        for (size_t e = 0; e < p.size(); ++e) REQUIRE(std::fabs(p[e] - q[e]) <= 2e-4 * largest);
      }
    }
}

TEST_CASE("statistics of integers do not depend on threads or on the order of rows") {
  const Tensor x = integers({3000, 70}, 5000000, 12345, true, 9);
  std::vector<double> turned;
  const std::vector<double> q = x.elements();
  for (int64_t r = x.rows() - 1; r >= 0; --r)
    turned.insert(turned.end(), q.begin() + r * x.cols(), q.begin() + (r + 1) * x.cols());
  const Tensor back = Tensor::from_elements(x.shape(), dtypes::int32, turned).with_quant(x.quant());
  const Tensor one = random_tensor({70}, dtypes::fp32, 1);
  const auto statistics = [&](const Tensor& t, int threads) {
    const int outer = num_threads();
    set_num_threads(threads);
    const NormOptions o = options_for(70);
    batch_norm(t, one, one, o);
    set_num_threads(outer);
    std::vector<double> out = o.running_mean.elements();
    for (const double v : o.running_var.elements()) out.push_back(v);
    return out;
  };
  const std::vector<double> first = statistics(x, 1);
  CHECK(statistics(x, 2) == first);
  CHECK(statistics(x, 4) == first);
  CHECK(statistics(back, 3) == first);
}

TEST_CASE("integers are kept in 16 bits where a batch fits, else as they are, and not as floats") {
  const Tensor one = random_tensor({16}, dtypes::fp32, 1);
  for (const auto& [most, bytes] : {std::pair<int64_t, int64_t>{32766, 2}, {40000, 4}}) {
    const Tensor x = integers({1000, 16}, most, 0, true, 3);
    const int64_t kept_bytes = runs_on_device() ? 4 : bytes;  // where a batch that does not fit cannot be seen
    int64_t kept = 0;
    Tape tape;
    tape.set_saved_hook([&](const Tensor& t) {
      kept += t.bytes();
      return t;
    });
    AccumulateSink sink;
    batch_norm(tape.leaf(x, &sink, dtypes::fp32), one, one, options_for(16));
    CHECK(kept >= 16000 * kept_bytes);
    CHECK(kept <= 16000 * kept_bytes + 1024);
  }
}

TEST_CASE("batch norm of integers names unsupported arguments") {
  const Tensor one = random_tensor({3}, dtypes::fp32, 1);
  Tensor x = integers({4, 3}, 5, 0, false, 1);
  QuantParams params = *x.quant();
  params.granularity = Granularity::token();
  params.scale = std::make_shared<const Tensor>(random_tensor({4}, dtypes::fp32, 1));
  const Tensor tokens = x.with_quant(std::make_shared<const QuantParams>(params));
  CHECK(error_of([&] { batch_norm(tokens, one, one, {}); }) ==
        "[batch_norm] x [4,3] int32 has scales per token, which differ within a column: expected per tensor or "
        "channel(1)");
  params = *x.quant();
  params.zero = std::make_shared<const Tensor>(Tensor::zeros({1}, dtypes::int32));
  CHECK(contains(error_of([&] { batch_norm(x.with_quant(std::make_shared<const QuantParams>(params)), one, one, {}); }),
                 "must be dense int32 without zero points or offsets"));
  CHECK(contains(error_of([&] { batch_norm(x, random_tensor({2}, dtypes::fp32, 1), one, {}); }),
                 "gamma must be [3] fp32"));
  CHECK(contains(error_of([&] { tensor_norm(x, one, one, {}); }), "[tensor_norm] x must be fp32"));
}
