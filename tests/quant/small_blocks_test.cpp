// Gradients of schemes that divide by a statistic of the block, for blocks of zeros and of numbers too small for it.
#include <cmath>

#include "quant/reference.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

QuantSpec spec_of(const char* scheme, DType dtype) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  spec.granularity = Granularity::channel(0);
  return spec;
}

std::vector<float> gradient_of(const QuantSpec& spec, const Shape& shape, const std::vector<float>& x,
                               const std::vector<float>& g) {
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  const Tensor master = test::tensor_of(shape, x), through = test::tensor_of(shape, g);
  quantizer.leaf_backward(spec, quantizer.fit(spec, master), master, through, through);
  return {through.as<float>(), through.as<float>() + through.numel()};
}

TEST_CASE("the gradient of a dorefa_weight block of zeros is the gradient of its values") {
  const std::vector<float> g{0.1978f, -3, 100, 1e-3f};
  CHECK(gradient_of(spec_of("dorefa_weight", dtypes::uint4), {1, 4}, {0, 0, 0, 0}, g) == g);
  // Other blocks divide by their largest tanh; tiny ones do not.
  const std::vector<float> x{0.5f, -0.25f, 0, 0.1f};
  const std::vector<float> mixed =
      gradient_of(spec_of("dorefa_weight", dtypes::uint4), {2, 4}, {x[0], x[1], x[2], x[3], 1e-30f, -1e-38f, 0, 1e-40f},
                  {1, 1, 1, 1, g[0], g[1], g[2], g[3]});
  for (size_t i = 0; i < 4; ++i) {
    const double t = std::tanh(static_cast<double>(x[i]));
    CHECK(static_cast<double>(mixed[i]) == Approx((1 - t * t) / std::tanh(0.5)).epsilon(1e-6));
    CHECK(mixed[4 + i] == g[i]);
  }
}

TEST_CASE("the gradient of standardized_binary is finite for rows of any size") {
  for (const float size : {0.0f, 1e-45f, 1e-40f, 1e-38f, 1e-30f, 1e-25f, 1e-20f, 1e-19f, 1e-10f, 1.0f, 1e15f}) {
    std::vector<float> x;
    x.reserve(8);
    for (int i = 0; i < 8; ++i) x.push_back(size * static_cast<float>(i - 3));
    for (const float g : {0.2f, 1e6f}) {
      const std::vector<float> gradient =
          gradient_of(spec_of("standardized_binary", dtypes::bint1), {1, 8}, x, {g, -g, g, g, 0, -g, g, g / 2});
      INFO("size " << size << " g " << g);
      for (const float v : gradient) {
        CHECK(std::isfinite(v));
        if (size < 5e-20f) CHECK(std::fabs(v) <= 4 * g);
      }
    }
  }
}

}  // namespace
}  // namespace bitgrad
