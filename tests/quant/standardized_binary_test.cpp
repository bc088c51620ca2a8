// standardized_binary: codes and scales of IR-Net, and its gradient through the standardisation against central
// differences in double.
#include "quant/reference.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

QuantSpec spec_of(const Granularity& granularity, float t) {
  QuantSpec spec;
  spec.scheme = "standardized_binary";
  spec.dtype = dtypes::bint1;
  spec.granularity = granularity;
  spec.ste_t = t;
  return spec;
}

// sum g_i * s * F(u_i) over one block, F' = the slope of the rule: F = max(1, t) / t * tanh(t u).
double smooth(const std::vector<double>& x, const std::vector<double>& g, double s, double t) {
  const double n = static_cast<double>(x.size());
  double mean = 0, squares = 0, total = 0;
  for (const double v : x) mean += v / n;
  for (const double v : x) squares += (v - mean) * (v - mean);
  const double sd = x.size() > 1 ? std::sqrt(squares / (n - 1)) : 1.0;
  for (size_t i = 0; i < x.size(); ++i) total += g[i] * s * std::max(1.0, t) / t * std::tanh(t * (x[i] - mean) / sd);
  return total;
}

TEST_CASE("the gradient of standardized_binary is that of its smooth form, mean and deviation included") {
  const Shape shape{3, 67};
  const std::vector<float> x = test::numbers_for_test(shape.numel(), 0.4f, 41),
                           g = test::numbers_for_test(shape.numel(), 2, 42);
  for (const float t : {0.2f, 1.0f, 3.0f})
    for (const int64_t width : {67, 32, 33, 64}) {
      const QuantSpec spec = spec_of(width == 67 ? Granularity::channel(0) : Granularity::groups(width), t);
      const Quantizer& quantizer = find_quantizer(spec.scheme);
      const Tensor master = test::tensor_of(shape, x), through = test::tensor_of(shape, g);
      const QuantParams params = quantizer.fit(spec, master);
      quantizer.leaf_backward(spec, params, master, through, through);
      double worst = 0, largest = 0;
      const int64_t per_row = (67 + width - 1) / width;
      for (int64_t b = 0; b < 3 * per_row; ++b) {
        const int64_t from = b / per_row * 67 + b % per_row * width, n = std::min(width, 67 - b % per_row * width);
        std::vector<double> block(x.begin() + from, x.begin() + from + n), seed(g.begin() + from, g.begin() + from + n);
        const double s = static_cast<double>(params.scale->as<float>()[b]);
        for (size_t i = 0; i < block.size(); ++i) {
          const double at = block[i];
          block[i] = at + 1e-6;
          const double up = smooth(block, seed, s, static_cast<double>(t));
          block[i] = at - 1e-6;
          const double down = smooth(block, seed, s, static_cast<double>(t));
          block[i] = at;
          const double got = static_cast<double>(through.as<float>()[from + static_cast<int64_t>(i)]);
          worst = std::max(worst, std::fabs(got - (up - down) / 2e-6));
          largest = std::max(largest, std::fabs(got));
        }
      }
      INFO("t " << t << " width " << width);
      CHECK(largest > 0.1);
      CHECK(worst < 1e-5 * largest);
    }
}

TEST_CASE("scales of standardized_binary are the nearest power of two in the logarithm, codes are by the mean") {
  // mean 1, sum of squares 8, sd sqrt(8 / 3), mean abs u = 1 / 1.633 = 0.61, log2 = -0.71: s = 1/2
  const QuantSpec spec = spec_of(Granularity::channel(0), 1);
  const Tensor t = quantize_dynamic(spec, test::tensor_of({1, 4}, {3, 1, -1, 1}));
  CHECK(t.elements() == std::vector<double>{1, 1, -1, 1});
  CHECK(t.quant()->scale->as<float>()[0] == 0.5f);
  CHECK(t.quant()->statistic->as<float>()[0] == 1.0f);
  CHECK(t.values() == std::vector<double>{0.5, 0.5, -0.5, 0.5});
  // Two numbers: u = +-1 / sqrt 2, whose logarithm is a half in exact numbers, and whose fp32 fraction decides.
  const float unit = 1.0f / std::sqrt(2.0f);
  const float want = static_cast<double>(unit) > std::sqrt(0.5) ? 1.0f : 0.5f;
  CHECK(quantize_dynamic(spec, test::tensor_of({1, 2}, {1, -1})).quant()->scale->as<float>()[0] == want);
}

TEST_CASE("equal numbers and single ones have the smallest scale, codes +1 and finite gradients") {
  for (const Granularity& g : {Granularity::channel(0), Granularity::groups(1), Granularity::token()})
    for (const float value : {0.0f, 2.0f, -1e-40f}) {
      const QuantSpec spec = spec_of(g, 1);
      const Tensor x = test::tensor_of({2, 8}, std::vector<float>(16, value));
      const Tensor q = quantize_dynamic(spec, x);
      CHECK(q.elements() == std::vector<double>(16, 1));
      CHECK(q.quant()->scale->as<float>()[0] == std::ldexp(1.0f, -126));
      const Tensor through = test::tensor_of({2, 8}, test::numbers_for_test(16, 3, 2));
      find_quantizer(spec.scheme).leaf_backward(spec, *q.quant(), x, through, through);
      for (const double v : through.elements()) CHECK(std::isfinite(v));
    }
}

TEST_CASE("standardized_binary refuses blocks that cross rows, numbers whose squares overflow, and other dtypes") {
  const auto error = [](const QuantSpec& spec) {
    return test::error_of([&] { find_quantizer(spec.scheme).check(spec, true); });
  };
  for (const Granularity& g : {Granularity::tensor(), Granularity::channel(1), Granularity::groups(4, 0)})
    CHECK(error(spec_of(g, 1)) ==
          concat("[standardized_binary] granularity: got ", g, ", expected channel(0), token or groups along a row."));
  QuantSpec spec = spec_of(Granularity::channel(0), 1);
  CHECK(test::contains(test::error_of([&] {
                         quantize_dynamic(spec, test::tensor_of({1, 2}, {1e30f, -1e30f}));
                       }),
                       test::runs_on_device() ? "are too large: the standard deviation of a block is not finite"
                                              : "are too large: the standard deviation of block 0 is inf"));
  spec.dtype = dtypes::int2;
  CHECK(test::contains(error(spec), "got kind int, expected kind sign"));
}

TEST_CASE("the other rules act on the standardized number") {
  QuantSpec spec = spec_of(Granularity::channel(0), 1);
  const std::vector<float> numbers = test::numbers_for_test(67, 0.4f, 43);
  const Tensor x = test::tensor_of({1, 67}, numbers);
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  const QuantParams params = quantizer.fit(spec, x);
  const double s = static_cast<double>(params.scale->as<float>()[0]);
  double mean = 0, squares = 0;
  for (const float v : numbers) mean += static_cast<double>(v) / 67;
  for (const float v : numbers) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  const double sd = std::sqrt(squares / 66);
  for (const SteRule rule : {SteRule::kIdentity, SteRule::kClip, SteRule::kApproxSign, SteRule::kNone}) {
    spec.ste = rule;
    const Tensor through = Tensor::full({1, 67}, dtypes::fp32, 1);
    quantizer.leaf_backward(spec, params, x, through, through);
    std::vector<double> h, u;
    double h_mean = 0, hu = 0;
    for (const float v : numbers) {
      u.push_back((static_cast<double>(v) - mean) / sd);
      const double a = std::fabs(u.back());
      double slope = rule == SteRule::kNone ? 0 : 1;
      if (rule == SteRule::kClip) slope = a <= 1 ? 1 : 0;
      if (rule == SteRule::kApproxSign) slope = std::max(0.0, 2 - 2 * a);
      h.push_back(s * slope);
      h_mean += h.back() / 67;
      hu += h.back() * u.back();
    }
    double worst = 0;
    for (size_t i = 0; i < h.size(); ++i)
      worst = std::max(
          worst, std::fabs(static_cast<double>(through.as<float>()[i]) - ((h[i] - h_mean) - u[i] * hu / 66) / sd));
    INFO(static_cast<int>(rule));
    CHECK(worst < 1e-5);
  }
}

}  // namespace
}  // namespace bitgrad
