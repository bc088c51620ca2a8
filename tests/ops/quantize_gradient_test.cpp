// Op quantize_gradient: identity forward, codes of the gradient backward.
#include <cmath>
#include <limits>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

QuantSpec spec_of(const std::string& scheme, DType dtype, Rounding rounding) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  spec.rounding = rounding;
  return spec;
}

Tensor gradient(const Tensor& x, const QuantSpec& spec, const RandomStream& draws, const Tensor& seed, DType x_edge,
                DType y_edge) {
  AccumulateSink sink;
  Tape tape;
  Var y = quantize_gradient(tape.leaf(x, &sink, x_edge), spec, draws);
  y.want_grad(y_edge);
  CHECK(y.value().data() == x.data());
  tape.backward({y}, {seed});
  return sink.grad();
}

TEST_CASE("the gradient becomes the nearest values of its codes, in the edge's dtype") {
  const Tensor x = test::random_tensor({5, 33}, dtypes::fp32, 1);
  for (const DType y_edge : {dtypes::fp32, dtypes::bf16})
    for (const DType x_edge : {dtypes::fp32, dtypes::bf16}) {
      const Tensor g = test::random_tensor({5, 33}, y_edge, 2);
      const std::vector<double> from = g.elements();
      float a = 0;
      for (const double v : from) a = std::max(a, std::fabs(static_cast<float>(v)));
      const float s = a / 7.0f;
      const std::vector<double> got =
          gradient(x, spec_of("absmax", dtypes::int4, Rounding::kNearest), {}, g, x_edge, y_edge).elements();
      int wrong = 0;
      for (size_t i = 0; i < from.size(); ++i) {
        float want = s * std::nearbyint(static_cast<float>(from[i]) * (1.0f / s));
        if (x_edge == dtypes::bf16) want = bf16_to_float(bf16_from_float(want));
        wrong += got[i] != static_cast<double>(want);
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("DoReFa's gradients are scaled per token, stochastic and unbiased") {
  QuantSpec spec = spec_of("dorefa_gradient", dtypes::uint4, Rounding::kStochastic);
  spec.granularity = Granularity::token();
  const Tensor x = Tensor::zeros({2, 64}, dtypes::fp32);
  Tensor g = test::random_tensor({2, 64}, dtypes::fp32, 2);
  for (int64_t i = 0; i < 64; ++i) g.as<float>()[i] *= 1e-6f;  // a row of small numbers keeps its own scale
  std::vector<double> sum(128);
  const int draws = 400;
  for (int n = 0; n < draws; ++n) {
    const RandomStream stream{5, Purpose::kGradient, 77, static_cast<uint32_t>(n)};
    const std::vector<double> got = gradient(x, spec, stream, g, dtypes::fp32, dtypes::fp32).elements();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += got[i];
  }
  int far = 0;
  const std::vector<double> want = g.elements();
  for (size_t i = 0; i < sum.size(); ++i) {
    const double top = i < 64 ? 1e-6 : 1;  // a step is at most 2 top / 15; sd of a mean of 400 at most half a step / 20
    far += std::fabs(sum[i] / draws - want[i]) > 6 * top / 15 / 20;
  }
  CHECK(far == 0);
  const RandomStream one{5, Purpose::kGradient, 77, 0}, two{5, Purpose::kGradient, 77, 1};
  CHECK(gradient(x, spec, one, g, dtypes::fp32, dtypes::fp32).elements() ==
        gradient(x, spec, one, g, dtypes::fp32, dtypes::fp32).elements());
  CHECK(gradient(x, spec, one, g, dtypes::fp32, dtypes::fp32).elements() !=
        gradient(x, spec, two, g, dtypes::fp32, dtypes::fp32).elements());
}

TEST_CASE("zero gradients stay zero, an empty one stays empty, and NaN goes on to where the optimizer finds it") {
  const QuantSpec spec = spec_of("absmax", dtypes::int4, Rounding::kNearest);
  const Tensor x = Tensor::zeros({1, 4}, dtypes::fp32);
  CHECK(gradient(x, spec, {}, x, dtypes::fp32, dtypes::fp32).elements() == std::vector<double>(4, 0));
  const Tensor none = Tensor::zeros({0, 4}, dtypes::fp32);
  CHECK(gradient(none, spec, {}, none, dtypes::fp32, dtypes::fp32).shape() == Shape{0, 4});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Tensor g = Tensor::full({1, 4}, dtypes::fp32, 0.25);
    g.as<float>()[2] = bad;
    const Tensor got = gradient(x, spec, {}, g, dtypes::fp32, dtypes::fp32);
    CHECK_FALSE(std::isfinite(got.as<float>()[2]));
    CHECK(got.as<float>()[0] == 0.25f);
  }
}

TEST_CASE("quantize_gradient checks its scheme before any backward") {
  const Tensor x = Tensor::zeros({1, 4}, dtypes::fp32);
  CHECK(contains(error_of([&] { quantize_gradient(x, spec_of("binary", dtypes::int4, Rounding::kNearest), {}); }),
                 "expected kind sign"));
  CHECK(contains(error_of([&] { quantize_gradient(x, spec_of("nothing", dtypes::int4, Rounding::kNearest), {}); }),
                 "unknown scheme 'nothing'"));
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(contains(error_of([&] {
                     quantize_gradient(Tensor::zeros({1}, dtypes::fp64),
                                       spec_of("absmax", dtypes::int4, Rounding::kNearest), {});
                   }),
                   "gradients of fp64 have no quantized form"));
}

}  // namespace
}  // namespace bitgrad
