// GELU's way in vectors: the bits of base/math.h, at the edges of its tables and everywhere between.
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/math.h"
#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/everywhere.h"

namespace bitgrad {
namespace {

using namespace kernels;

struct RestoreIsa {
  IsaLevel level = isa_cap();
  ~RestoreIsa() { set_isa_cap(level); }
};

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b); }

// Edges of intervals of 25/64 and their neighbours on both sides, beyond the tables too; 0, subnormals, Inf, NaN.
std::vector<float> edges() {
  std::vector<float> x{0.0f, -0.0f, 1e-45f, -1e-45f, 1e-38f, -1e-30f, INFINITY, -INFINITY, NAN, 40.0f, -40.0f, -14.5f};
  for (int half = -40; half <= 40; ++half) {
    const float at = static_cast<float>(half) * 0.1953125f;
    for (float v : {at, std::nextafter(at, -INFINITY), std::nextafter(at, INFINITY)}) x.push_back(v);
  }
  return x;
}

// What of x differs from base/math.h.
std::vector<float> differing(const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> y(x.size()), slope(x.size()), ones(x.size(), 1.0f), wrong;
  unary_forward(UnaryOp::gelu, n, x.data(), y.data());
  unary_backward(UnaryOp::gelu, n, x.data(), ones.data(), slope.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto wide = static_cast<double>(x[i]);
    if (!same(y[i], static_cast<float>(math::gelu_double(wide))) ||
        !same(slope[i], static_cast<float>(math::gelu_slope_double(wide))))
      wrong.push_back(x[i]);
  }
  return wrong;
}

}  // namespace

TEST_CASE("GELU and its derivative have the bits of base/math.h on every instruction set") {
  const RestoreIsa restore;
  for (const IsaLevel level : test::isa_levels()) {
    set_isa_cap(level);
    INFO(static_cast<int>(level));
    // Each edge among inner numbers, so that no neighbour decides which tables serve it; every place of a vector.
    for (const float edge : edges())
      for (size_t place = 0; place < 19; ++place) {
        std::vector<float> x(19, 0.3f);
        x[place] = edge;
        INFO(edge << " at " << place);
        CHECK(differing(x).empty());
      }
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 1.5f);
    std::vector<float> x(300001), bits(200003);
    for (float& v : x) v = normal(random);
    for (float& v : bits) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    CHECK(differing(x).empty());
    CHECK(differing(bits).empty());
  }
}

}  // namespace bitgrad
