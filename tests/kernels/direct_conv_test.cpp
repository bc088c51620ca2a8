// Convolutions from the images themselves, on emulated tiles and, where they are granted, on the machine's, against
// direct loops: codes with ==, floats within the bound of an fp32 sum (of bf16 ones: of the rounded operands).
#include <cmath>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "emulation/amx/direct.h"
#include "kernels/direct_support.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using namespace kernels;
using conv::DirectIsa;
using test::DirectProblem;
using test::for_taps;

const DType kImages[] = {dtypes::bint1, dtypes::int8, dtypes::uint8, dtypes::ternary, dtypes::uint4, dtypes::int3};
const DType kWeights[] = {dtypes::bint1, dtypes::int8, dtypes::ternary, dtypes::int4, dtypes::uint7};

std::vector<const DirectIsa*> units() {
  std::vector<const DirectIsa*> all{&conv::direct_emulated()};
  if ((cpu_isa() & isa::kAmx) != 0) all.push_back(&conv::direct_machine());
  return all;
}

// [cpu]: convolutions of the CPU, which a device gathers
TEST_CASE("direct convolutions of codes give the integers of direct loops", "[cpu]") {
  const int rounds = 160;
  for (int round = 0; round < rounds; ++round) {
    DirectProblem p(static_cast<uint64_t>(round));
    const DType xd = kImages[p.draw(0, 5)], wd = kWeights[p.draw(0, 4)];
    const bool input_gradient = p.draw.flip();
    if (xd == dtypes::bint1 && !input_gradient) p.pad = static_cast<int>(p.draw(-1, 1));
    const Tensor x = test::random_tensor(p.image(input_gradient), xd, 1);
    const int64_t rows = input_gradient ? p.c : p.o, cols = p.g.taps() * (input_gradient ? p.o : p.c);
    const Tensor w = test::random_tensor({rows, cols}, wd, 2);
    p.sum(x.elements(), w.elements(), input_gradient);
    for (const DirectIsa* unit : units()) {
      const Tensor y = Tensor::full({p.rows(input_gradient), p.o}, dtypes::int32, -77);
      REQUIRE(conv::conv_amx(p.args(x, w, input_gradient, y), *unit));
      INFO("round " << round << " x " << xd << " w " << wd << " input_gradient " << input_gradient << " c " << p.c
                    << " o " << p.o);
      REQUIRE(y.elements() == p.sums);
    }
  }
}

TEST_CASE("direct convolutions scale, add a bias and stride their rows", "[cpu]") {
  DirectProblem p(100);
  const Tensor x = test::random_tensor({p.images, p.g.h, p.g.w, p.c}, dtypes::int8, 1),
               w = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::int4, 2);
  const Tensor image_scale = test::random_tensor({p.images}, dtypes::fp32, 3, 0.25, 1.25),
               w_scale = test::random_tensor({p.o}, dtypes::fp32, 4, 0.25, 1.25),
               bias = test::random_tensor({p.o}, dtypes::fp32, 5);
  p.sum(x.elements(), w.elements(), false);
  for (const DirectIsa* unit : units()) {
    const Tensor y = Tensor::full({p.images * p.g.windows(), p.o + 3}, dtypes::fp32, -77);
    DirectConvArgs args = p.args(x, w, false, y);
    args.ldc = p.o + 3;
    args.image_scale = image_scale.as<float>();
    args.image_step = 1;
    args.w_scale = w_scale.as<float>();
    args.w_step = 1;
    args.bias = bias.as<float>();
    REQUIRE(conv::conv_amx(args, *unit));
    for (int64_t m = 0; m < p.images * p.g.windows(); ++m)
      for (int64_t j = 0; j < p.o + 3; ++j) {
        const float s = j < p.o ? image_scale.as<float>()[m / p.g.windows()] * w_scale.as<float>()[j] : 0;
        const float expected =
            j < p.o ? static_cast<float>(p.sums[static_cast<size_t>(m * p.o + j)]) * s + bias.as<float>()[j] : -77;
        REQUIRE(y.as<float>()[m * (p.o + 3) + j] == expected);
      }
  }
}

double rounded(double x) { return static_cast<double>(bf16_to_float(bf16_from_float(static_cast<float>(x)))); }

TEST_CASE("direct convolutions of floats are within the bound of an fp32 sum", "[cpu]") {
  for (int round = 0; round < 100; ++round) {
    DirectProblem p(200 + static_cast<uint64_t>(round));
    const DType wd = kWeights[p.draw(0, 4)];
    const bool input_gradient = p.draw.flip(), bf16 = p.draw.flip(), folded = p.draw.flip();
    const Tensor x = test::random_tensor(p.image(input_gradient), dtypes::fp32, 1, -3, 5);
    const int64_t rows = input_gradient ? p.c : p.o, cols = p.g.taps() * (input_gradient ? p.o : p.c);
    const Tensor w = test::random_tensor({rows, cols}, wd, 2);
    const Tensor fold = test::random_tensor({p.c}, dtypes::fp32, 3, 0.25, 1.25);
    std::vector<double> values = x.elements();
    for (size_t i = 0; i < values.size(); ++i) {
      const float f = folded ? fold.as<float>()[static_cast<int64_t>(i) % p.c] : 1.0f;
      values[i] = static_cast<double>(static_cast<float>(values[i]) * f);
      if (bf16) values[i] = rounded(values[i]);
    }
    p.sum(values, w.elements(), input_gradient);
    for (const DirectIsa* unit : units()) {
      const Tensor y = Tensor::full({p.rows(input_gradient), p.o}, dtypes::fp32, -77);
      DirectConvArgs args = p.args(x, w, input_gradient, y);
      args.bf16 = bf16;
      args.fold = folded ? fold.as<float>() : nullptr;
      REQUIRE(conv::conv_amx(args, *unit));
      const double terms = static_cast<double>(p.g.taps() * p.c * 3 + 3);
      for (size_t i = 0; i < p.sums.size(); ++i) {
        INFO("round " << round << " at " << i << " got " << y.as<float>()[i] << " expected " << p.sums[i]);
        REQUIRE(std::abs(static_cast<double>(y.as<float>()[i]) - p.sums[i]) <= p.sizes[i] * terms * 0x1p-23 + 1e-30);
      }
    }
  }
}

TEST_CASE("direct weight gradients are those of direct loops", "[cpu]") {
  for (int round = 0; round < 120; ++round) {
    DirectProblem p(300 + static_cast<uint64_t>(round));
    const DType xd = kImages[p.draw(0, 5)];
    const bool codes = p.draw.flip(), bf16 = p.draw.flip();
    if (xd == dtypes::bint1) p.pad = static_cast<int>(p.draw(-1, 1));
    const int64_t windows = p.images * p.g.windows(), k = p.g.taps() * p.c;
    const Tensor x = test::random_tensor({p.images, p.g.h, p.g.w, p.c}, xd, 1);
    const Tensor gy = test::random_tensor({windows, p.o}, codes ? dtypes::int8 : dtypes::fp32, 2, -3, 5);
    const std::vector<double> xv = x.elements();
    std::vector<double> gv = gy.elements(), sums(static_cast<size_t>(p.o * k), 0), sizes = sums;
    const float fold = 0.375f;
    if (!codes)
      for (double& v : gv) v = bf16 ? rounded(static_cast<double>(static_cast<float>(v) * fold)) : v * 0.375;
    for_taps(p.g, p.images, [&](int64_t m, int64_t pixel, int64_t tap) {
      for (int64_t i = 0; i < p.c; ++i)
        for (int64_t j = 0; j < p.o; ++j) {
          const double v = pixel < 0 ? p.pad : xv[static_cast<size_t>(pixel * p.c + i)];
          const double term = v * gv[static_cast<size_t>(m * p.o + j)];
          sums[static_cast<size_t>(j * k + tap * p.c + i)] += term;
          sizes[static_cast<size_t>(j * k + tap * p.c + i)] += std::abs(term);
        }
    });
    for (const DirectIsa* unit : units()) {
      const Tensor gw = Tensor::full({p.o, k}, codes ? dtypes::int32 : dtypes::fp32, -77);
      DirectWeightsArgs args = p.weights_args(x, gy, gw);
      args.fold = &fold;
      args.bf16 = bf16;
      REQUIRE(conv::conv_weights_amx(args, *unit));
      INFO("round " << round << " x " << xd << " codes " << codes << " bf16 " << bf16 << " c " << p.c << " o " << p.o);
      const std::vector<double> got = gw.elements();
      if (codes) REQUIRE(got == sums);
      for (size_t i = 0; i < sums.size(); ++i)
        REQUIRE(std::abs(got[i] - sums[i]) <= sizes[i] * static_cast<double>(3 * windows + 3) * 0x1p-23 + 1e-30);
    }
  }
}

TEST_CASE("direct convolutions refuse what the unit does not know", "[cpu]") {
  DirectProblem p(1);
  const Tensor x = test::random_tensor({p.images, p.g.h, p.g.w, p.c}, dtypes::int8, 1),
               w = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::uint8, 2),
               y = Tensor::full({p.images * p.g.windows(), p.o}, dtypes::int32, 5);
  REQUIRE_FALSE(conv::conv_amx(p.args(x, w, false, y), conv::direct_emulated()));
  const Tensor signs = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::bint1, 2);
  p.g.stride_x = p.g.stride_y + 1;
  REQUIRE_FALSE(conv::conv_amx(p.args(x, signs, false, y), conv::direct_emulated()));
  REQUIRE(y.elements() == std::vector<double>(static_cast<size_t>(y.numel()), 5.0));
}

}  // namespace
}  // namespace bitgrad
