// Convolutions of signs in vectors, without gathered rows, on lanes in memory and, where they are granted, on the
// machine's, against direct loops: integers with ==, floats within the bound of an fp32 sum.
#include <cmath>
#include <limits>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "emulation/amx/signs.h"
#include "kernels/direct_support.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using namespace kernels;
using conv::SignIsa;
using test::DirectProblem;
using test::for_taps;

std::vector<const SignIsa*> units(bool counts = false) {
  std::vector<const SignIsa*> all{&conv::signs_emulated()};
  const IsaMask needs = isa::kAvx512 | (counts ? isa::kAvx512Popcnt : 0u);
  if ((cpu_isa() & needs) == needs) all.push_back(&conv::signs_machine());
  return all;
}

// [cpu]: convolutions of the CPU, which a device gathers
// [caps]: every unit is named, and lanes in memory run under any cap
TEST_CASE("direct convolutions of signs give the integers of direct loops", "[caps][cpu]") {
  for (int round = 0; round < 150; ++round) {
    DirectProblem p = test::lane_problem(1000 + static_cast<uint64_t>(round));
    p.c = p.draw(1, 9) * 8;
    p.pad = static_cast<int>(p.draw(-1, 1));
    const Tensor x = test::random_tensor(p.image(false), dtypes::bint1, 1),
                 w = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::bint1, 2);
    p.sum(x.elements(), w.elements(), false);
    const Tensor scale = test::random_tensor({p.o}, dtypes::fp32, 4),
                 bias = test::random_tensor({p.o}, dtypes::fp32, 5),
                 of_images = test::random_tensor({p.images}, dtypes::fp32, 6, 0.25, 1.25);
    for (const SignIsa* unit : units(true)) {
      INFO("round " << round << " c " << p.c << " o " << p.o << " pad " << p.pad);
      const Tensor y = Tensor::full({p.rows(false), p.o}, dtypes::int32, -77);
      REQUIRE(conv::conv_signs(p.args(x, w, false, y), *unit));
      REQUIRE(y.elements() == p.sums);
      const Tensor scaled = Tensor::full({p.rows(false), p.o + 3}, dtypes::fp32, -77);
      DirectConvArgs args = p.args(x, w, false, scaled);
      args.ldc = p.o + 3;
      args.w_scale = scale.as<float>();
      args.w_step = 1;
      args.image_scale = of_images.as<float>();
      args.image_step = 1;
      args.bias = round % 2 == 0 ? bias.as<float>() : nullptr;
      REQUIRE(conv::conv_signs(args, *unit));
      for (int64_t m = 0; m < p.rows(false); ++m)
        for (int64_t j = 0; j < p.o + 3; ++j) {
          const float at = j < p.o ? of_images.as<float>()[m / p.g.windows()] * scale.as<float>()[j] : 0;
          const float sum = j < p.o ? static_cast<float>(p.sums[static_cast<size_t>(m * p.o + j)]) * at : -77;
          REQUIRE(scaled.as<float>()[m * (p.o + 3) + j] == (j < p.o && args.bias ? sum + args.bias[j] : sum));
        }
    }
  }
}

DirectProblem transposed(DirectProblem p) {
  std::swap(p.c, p.o);
  return p;
}

double rounded(double x) { return static_cast<double>(bf16_to_float(bf16_from_float(static_cast<float>(x)))); }

TEST_CASE("direct gradients of images from signs are within the bound of an fp32 sum", "[caps][cpu]") {
  for (int round = 0; round < 150; ++round) {
    DirectProblem p = test::lane_problem(2000 + static_cast<uint64_t>(round));
    const bool bf16 = p.draw.flip(), folded = p.draw.flip();
    const Tensor x = test::random_tensor(p.image(true), dtypes::fp32, 1, -3, 5),
                 w = test::random_tensor({p.c, p.g.taps() * p.o}, dtypes::bint1, 2),
                 fold = test::random_tensor({p.c}, dtypes::fp32, 3, 0.25, 1.25);
    std::vector<double> values = x.elements();
    for (size_t i = 0; i < values.size(); ++i) {
      const float f = folded ? fold.as<float>()[static_cast<int64_t>(i) % p.c] : 1.0f;
      values[i] = static_cast<double>(static_cast<float>(values[i]) * f);
      values[i] = bf16 ? rounded(values[i]) : values[i];
    }
    p.sum(values, w.elements(), true);
    for (const SignIsa* unit : units()) {
      const Tensor y = Tensor::full({p.rows(true), p.o}, dtypes::fp32, -77);
      DirectConvArgs args = p.args(x, w, true, y);
      args.bf16 = bf16;
      args.fold = folded ? fold.as<float>() : nullptr;
      REQUIRE(conv::conv_gradient_signs(args, *unit));
      const double terms = static_cast<double>(p.g.taps() * p.c);
      for (size_t i = 0; i < p.sums.size(); ++i) {
        INFO("round " << round << " at " << i << " got " << y.as<float>()[i] << " expected " << p.sums[i]);
        REQUIRE(std::abs(static_cast<double>(y.as<float>()[i]) - p.sums[i]) <= p.sizes[i] * terms * 0x1p-23);
      }
    }
  }
}

TEST_CASE("direct gradients of weights from signs are those of direct loops", "[caps][cpu]") {
  for (int round = 0; round < 150; ++round) {
    DirectProblem p = test::lane_problem(3000 + static_cast<uint64_t>(round));
    if (round % 10 == 0) p.images = p.draw(64, 90);
    p.pad = static_cast<int>(p.draw(-1, 1));
    const bool bf16 = p.draw.flip(), folded = p.draw.flip();
    const int64_t windows = p.images * p.g.windows(), k = p.g.taps() * p.c;
    const Tensor x = test::random_tensor({p.images, p.g.h, p.g.w, p.c}, dtypes::bint1, 1),
                 gy = test::random_tensor({windows, p.o}, dtypes::fp32, 2, -3, 5);
    const std::vector<double> xv = x.elements();
    std::vector<double> gv = gy.elements(), sums(static_cast<size_t>(p.o * k), 0), sizes = sums;
    const float fold = 0.7f;
    for (double& v : gv) {
      if (folded) v = static_cast<double>(static_cast<float>(v) * fold);
      if (bf16) v = rounded(v);
    }
    for_taps(p.g, p.images, [&](int64_t m, int64_t pixel, int64_t tap) {
      for (int64_t i = 0; i < p.c; ++i)
        for (int64_t j = 0; j < p.o; ++j) {
          const double v = pixel < 0 ? p.pad : xv[static_cast<size_t>(pixel * p.c + i)];
          const double term = v * gv[static_cast<size_t>(m * p.o + j)];
          sums[static_cast<size_t>(j * k + tap * p.c + i)] += term;
          sizes[static_cast<size_t>(j * k + tap * p.c + i)] += std::abs(term);
        }
    });
    for (const SignIsa* unit : units()) {
      const Tensor gw = Tensor::full({p.o, k}, dtypes::fp32, -77);
      DirectWeightsArgs args = p.weights_args(x, gy, gw);
      args.fold = folded ? &fold : nullptr;
      args.bf16 = bf16;
      REQUIRE(conv::conv_weights_signs(args, *unit));
      for (size_t i = 0; i < sums.size(); ++i) {
        INFO("round " << round << " at " << i << " got " << gw.as<float>()[i] << " expected " << sums[i]);
        REQUIRE(std::abs(static_cast<double>(gw.as<float>()[i]) - sums[i]) <=
                sizes[i] * static_cast<double>(windows) * 0x1p-23);
      }
    }
  }
}

TEST_CASE("direct gradients of int8 codes and signs are exact integers in every mode", "[caps][cpu]") {
  const BitsMode before = bits_mode();
  set_bits_mode(BitsMode::kStrict);
  for (int round = 0; round < 100; ++round) {
    DirectProblem p = test::lane_problem(5000 + static_cast<uint64_t>(round));
    p.pad = static_cast<int>(p.draw(-1, 1));
    const int64_t windows = p.images * p.g.windows(), k = p.g.taps() * p.c;
    const Tensor gy = test::random_tensor({windows, p.o}, dtypes::int8, 1),
                 x = test::random_tensor(p.image(false), dtypes::bint1, 2),
                 w = test::random_tensor({p.o, k}, dtypes::bint1, 3),
                 scales = test::random_tensor({p.images}, dtypes::fp32, 4, 0.25, 1.25);
    const std::vector<double> xv = x.elements(), gv = gy.elements();
    std::vector<double> sums(static_cast<size_t>(p.o * k), 0);
    for_taps(p.g, p.images, [&](int64_t m, int64_t pixel, int64_t tap) {
      for (int64_t i = 0; i < p.c; ++i)
        for (int64_t j = 0; j < p.o; ++j)
          sums[static_cast<size_t>(j * k + tap * p.c + i)] +=
              (pixel < 0 ? p.pad : xv[static_cast<size_t>(pixel * p.c + i)]) * gv[static_cast<size_t>(m * p.o + j)];
    });
    DirectProblem input_gradient = transposed(p);
    input_gradient.sum(gv, w.elements(), true);
    const float w_scale = 0.3f;
    for (const SignIsa* unit : units()) {
      INFO("round " << round << " c " << p.c << " o " << p.o);
      const Tensor gw = Tensor::full({p.o, k}, dtypes::int32, -77),
                   gx = Tensor::full({p.rows(true), p.c}, dtypes::fp32, 1);
      DirectWeightsArgs weights = p.weights_args(x, gy, gw);
      weights.gy_dtype = dtypes::int8;
      REQUIRE(conv::conv_weights_signs(weights, *unit));
      REQUIRE(gw.elements() == sums);
      DirectConvArgs args = input_gradient.args(gy, w, true, gx);
      args.image_scale = scales.as<float>();
      args.image_step = 1;
      args.w_scale = &w_scale;
      REQUIRE(conv::conv_gradient_signs(args, *unit));
      for (int64_t i = 0; i < gx.numel(); ++i)
        REQUIRE(gx.as<float>()[i] == static_cast<float>(input_gradient.sums[static_cast<size_t>(i)]) *
                                         (scales.as<float>()[i / p.c / p.g.pixels()] * w_scale));
    }
  }
  set_bits_mode(before);
}

TEST_CASE("direct convolutions of signs have the same bits for lanes in memory, the machine's and any threads",
          "[cpu]") {
  const int before = num_threads();
  for (int round = 0; round < 20; ++round) {
    DirectProblem p = test::lane_problem(4000 + static_cast<uint64_t>(round));
    p.images = p.draw(1, 70);
    const Tensor x = test::random_tensor(p.image(false), dtypes::bint1, 1),
                 gy = test::random_tensor({p.images, p.g.oh, p.g.ow, p.o}, dtypes::fp32, 2, -3, 5),
                 w = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::bint1, 3);
    std::vector<double> gw_first, gx_first;
    DirectProblem input_gradient = transposed(p);
    for (const SignIsa* unit : units())
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        const Tensor gw = Tensor::full({p.o, p.g.taps() * p.c}, dtypes::fp32, -77),
                     gx = Tensor::full({p.rows(true), p.c}, dtypes::fp32, -77);
        REQUIRE(conv::conv_weights_signs(p.weights_args(x, gy, gw), *unit));
        REQUIRE(conv::conv_gradient_signs(input_gradient.args(gy, w, true, gx), *unit));
        if (gw_first.empty()) {
          gw_first = gw.elements();
          gx_first = gx.elements();
        }
        REQUIRE(gw.elements() == gw_first);
        REQUIRE(gx.elements() == gx_first);
      }
  }
  set_num_threads(before);
}

TEST_CASE("Inf and NaN in a gradient reach the taps inside and nothing else", "[cpu]") {
  DirectProblem p(5);
  p.g = {3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1};
  p.images = 2;
  p.c = p.o = 16;
  const Tensor x = test::random_tensor(p.image(false), dtypes::bint1, 1),
               gy = Tensor::full({2 * 9, 16}, dtypes::fp32, 1.0), gw = Tensor::full({16, 9 * 16}, dtypes::fp32, -77);
  gy.as<float>()[0] = std::numeric_limits<float>::infinity();  // window (0, 0) of output 0
  for (const SignIsa* unit : units()) {
    REQUIRE(conv::conv_weights_signs(p.weights_args(x, gy, gw), *unit));
    for (int64_t o = 0; o < 16; ++o)
      for (int64_t tap = 0; tap < 9; ++tap)
        for (int64_t i = 0; i < 16; ++i) {
          const bool reads = o == 0 && tap / 3 >= 1 && tap % 3 >= 1;
          REQUIRE(std::isfinite(gw.as<float>()[o * 144 + tap * 16 + i]) != reads);
        }
  }
}

TEST_CASE("direct convolutions of signs refuse what they do not know", "[cpu]") {
  DirectProblem p(1);
  p.c = 16;
  const Tensor x = test::random_tensor(p.image(false), dtypes::bint1, 1),
               w = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::bint1, 2),
               bytes = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::int8, 2),
               y = Tensor::full({p.rows(false), p.o}, dtypes::int32, 5),
               gy = Tensor::full({p.rows(false), p.o}, dtypes::fp32, 1),
               gw = Tensor::full({p.o, p.g.taps() * p.c}, dtypes::fp32, 5);
  const SignIsa& unit = conv::signs_emulated();
  REQUIRE_FALSE(conv::conv_signs(p.args(x, bytes, false, y), unit));
  DirectConvArgs args = p.args(x, w, false, y);
  args.images = 0;
  REQUIRE_FALSE(conv::conv_signs(args, unit));
  args.images = p.images;
  args.channels = 12;
  REQUIRE_FALSE(conv::conv_signs(args, unit));
  args.channels = p.c;
  args.geometry.dilation_x = 2;
  REQUIRE_FALSE(conv::conv_signs(args, unit));
  const DirectWeightsArgs weights = p.weights_args(x, gy, gw);
  const BitsMode before = bits_mode();
  set_bits_mode(BitsMode::kStrict);
  const bool strict = conv::conv_weights_signs(weights, unit);
  set_bits_mode(before);
  CHECK_FALSE(strict);
  DirectWeightsArgs wide = weights;
  wide.geometry.kw = 8;
  REQUIRE_FALSE(conv::conv_weights_signs(wide, unit));
  const IsaLevel cap = isa_cap();
  set_isa_cap(IsaLevel::kAvx2);
  const bool capped = conv_direct(p.args(x, w, false, y)) || conv_weights_direct(weights);
  set_isa_cap(cap);
  REQUIRE_FALSE(capped);
  for (const double v : y.elements()) REQUIRE(v == 5);
  for (const double v : gw.elements()) REQUIRE(v == 5);
}

}  // namespace
}  // namespace bitgrad
