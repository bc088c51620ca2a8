// Depthwise convolutions on a device, forward and in every mode of the backward.
#include "bitgrad/ops/conv.h"
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Geometry {
  Conv2dOptions options;
  int64_t n, h, w, c, multiplier;
  Shape x() const { return {n, h, w, c}; }
  Shape weights() const { return {c * multiplier, options.kernel[0] * options.kernel[1]}; }
};

std::vector<Geometry> geometries() {
  std::vector<Geometry> out;
  const auto add = [&](Conv2dOptions o, int64_t n, int64_t h, int64_t w, int64_t c, int64_t multiplier) {
    o.groups = c;
    out.push_back({o, n, h, w, c, multiplier});
  };
  add({{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, 2, 7, 6, 19, 1);
  add({{3, 2}, {2, 3}, {2, 1}, {2, 0, 1, 3}}, 1, 9, 8, 5, 3);
  add({{2, 5}, {1, 2}, {1, 2}, {0, 4, 0, 4}}, 3, 3, 4, 8, 2);
  add({{1, 1}, {3, 3}, {1, 1}, {0, 0, 0, 0}}, 1, 5, 5, 4, 1);
  add({{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, 3, 14, 15, 3, 2);  // two panels of windows
  return out;
}

std::string depthwise_difference(const Geometry& g, const Tensor& x, const Tensor& w, const ProductModes& modes,
                                 DType grad = dtypes::fp32, int pad_value = 0) {
  Conv2dOptions options = g.options;
  options.pad_value = pad_value;
  const Tensor bias = host_numbers({g.c * g.multiplier}, 5);
  return device_difference([&] {
    AccumulateSink gx, gw;
    Tape tape;
    const Var y = conv2d(tape.leaf(here(x), &gx, grad), tape.leaf(here(w), &gw, grad), Var(here(bias)), options, modes);
    tape.backward({y}, {here(host_numbers(y.shape(), 31, 0.1))});
    return Results{y.value(), gx.grad(), gw.grad()};
  });
}

Tensor images(const Geometry& g, DType dtype, const Granularity& per, bool zeros = false, bool offsets = false) {
  const Tensor rows = host_codes({g.n * g.h * g.w, g.c}, dtype, 1);
  const Tensor scaled = with_scales(rows, per, zeros, offsets);
  return scaled.reshape(g.x());
}

}  // namespace

TEST_CASE("depthwise convolutions of floats give the CPU's bits on a device") {
  ProductModes bf16;
  bf16.gx = bf16.gw = ProductMode::kBf16;
  for (const Geometry& g : geometries()) {
    const Tensor x = host_numbers(g.x(), 1), w = host_numbers(g.weights(), 2);
    INFO(g.x() << ' ' << g.weights());
    CHECK(depthwise_difference(g, x, w, {}) == "");
    CHECK(depthwise_difference(g, x, w, bf16, dtypes::bf16, -1) == "");
    const Tensor codes = with_scales(host_codes(g.weights(), dtypes::int4, 2), Granularity::channel(0), true);
    CHECK(depthwise_difference(g, x, codes, {}) == "");
    CHECK(depthwise_difference(g, images(g, dtypes::uint4, Granularity::channel(1), false, true), w, bf16) == "");
    CHECK(depthwise_difference(g, images(g, dtypes::int8, Granularity::channel(1), true), codes, {}) == "");
    CHECK(depthwise_difference(g, images(g, dtypes::bint1, Granularity::channel(1)), codes, {}, dtypes::fp32, 1) == "");
  }
}

TEST_CASE("depthwise convolutions of codes give the CPU's bits on a device, int8 gradients too") {
  ProductModes int8;
  int8.gx = int8.gw = ProductMode::kInt8;
  const RandomStream draws{3, Purpose::kGradient, 7, 2};
  for (const Geometry& g : geometries()) {
    const Tensor signs = images(g, dtypes::bint1, Granularity::tensor());
    const Tensor bytes = images(g, dtypes::uint8, Granularity::tensor(), true);
    const Tensor w = with_scales(host_codes(g.weights(), dtypes::int8, 2), Granularity::channel(0), true);
    const Tensor groups = with_scales(host_codes(g.weights(), dtypes::uint4, 2), Granularity::groups(2), false, true);
    const Tensor offsets = with_scales(host_codes(g.weights(), dtypes::uint2, 2), Granularity::channel(0), false, true);
    INFO(g.x() << ' ' << g.weights());
    CHECK(depthwise_difference(g, signs, w, int8) == "");
    CHECK(depthwise_difference(g, signs, w, int8, dtypes::fp32, 1) == "");
    CHECK(depthwise_difference(g, bytes, w, int8, dtypes::bf16) == "");
    CHECK(depthwise_difference(g, bytes, groups, {}) == "");
    CHECK(depthwise_difference(g, bytes, offsets, {}) == "");
    ProductModes stochastic = int8;
    stochastic.sr = &draws;
    stochastic.y = dtypes::bf16;
    CHECK(depthwise_difference(g, bytes, w, stochastic) == "");
  }
}
