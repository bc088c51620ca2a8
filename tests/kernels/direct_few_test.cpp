// Convolutions of few channels in vectors, without gathered rows, on lanes in memory and, where they are granted, on
// the machine's, against direct loops: integers with ==, floats within the bound of an fp32 sum.
#include <cmath>
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
using conv::FewIsa;
using test::DirectProblem;

std::vector<const FewIsa*> units() {
  std::vector<const FewIsa*> all{&conv::few_emulated()};
  if ((cpu_isa() & isa::kAvx512) != 0) all.push_back(&conv::few_machine());
  return all;
}

DirectProblem few_problem(uint64_t seed) {
  DirectProblem p = test::lane_problem(seed);
  p.c = p.draw.flip() ? 3 : p.draw(1, 5);
  if (p.draw.flip()) p.g.kh = p.g.kw = p.g.h = 3, p.g.oh = (p.g.top + 1) / p.g.stride_y + 1, p.g.w = p.g.ow + 2;
  p.g.ow = (p.g.w + p.g.left - p.g.kw) / p.g.stride_x + 1;
  p.pad = static_cast<int>(p.draw(-1, 1));
  return p;
}

const DType kImages[] = {dtypes::int8, dtypes::uint8}, kWeights[] = {dtypes::bint1, dtypes::ternary, dtypes::int4};

// [cpu]: convolutions of the CPU, which a device gathers
TEST_CASE("direct convolutions of few channels of codes give the integers of direct loops", "[cpu]") {
  for (int round = 0; round < 120; ++round) {
    DirectProblem p = few_problem(6000 + static_cast<uint64_t>(round));
    if (p.g.ow <= 0 || p.g.oh <= 0) continue;
    const Tensor x = test::random_tensor(p.image(false), kImages[p.draw(0, 1)], 1),
                 w = test::random_tensor({p.o, p.g.taps() * p.c}, kWeights[p.draw(0, 2)], 2),
                 scale = test::random_tensor({p.o}, dtypes::fp32, 3),
                 bias = test::random_tensor({p.o}, dtypes::fp32, 4);
    p.sum(x.elements(), w.elements(), false);
    for (const FewIsa* unit : units()) {
      INFO("round " << round << " x " << x.dtype() << " w " << w.dtype() << " c " << p.c << " o " << p.o);
      const Tensor sums = Tensor::full({p.rows(false), p.o}, dtypes::int32, -77),
                   y = Tensor::full({p.rows(false), p.o + 2}, dtypes::fp32, -77);
      REQUIRE(conv::conv_few(p.args(x, w, false, sums), *unit));
      REQUIRE(sums.elements() == p.sums);
      DirectConvArgs args = p.args(x, w, false, y);
      args.ldc = p.o + 2;
      args.w_scale = scale.as<float>();
      args.w_step = 1;
      args.bias = bias.as<float>();
      REQUIRE(conv::conv_few(args, *unit));
      for (int64_t m = 0; m < p.rows(false); ++m)
        for (int64_t j = 0; j < p.o + 2; ++j) {
          const auto sum = [&] { return static_cast<float>(p.sums[static_cast<size_t>(m * p.o + j)]); };
          REQUIRE(y.as<float>()[m * (p.o + 2) + j] ==
                  (j < p.o ? sum() * scale.as<float>()[j] + bias.as<float>()[j] : -77.0f));
        }
    }
  }
}

void require_near(const Tensor& got, const std::vector<double>& sums, const std::vector<double>& sizes, double terms) {
  for (size_t i = 0; i < sums.size(); ++i) {
    INFO("at " << i << " got " << got.as<float>()[i] << " expected " << sums[i]);
    REQUIRE(std::abs(static_cast<double>(got.as<float>()[i]) - sums[i]) <= sizes[i] * terms * 0x1p-23);
  }
}

TEST_CASE("direct convolutions of few channels of floats are within the bound of an fp32 sum", "[cpu]") {
  for (int round = 0; round < 100; ++round) {
    DirectProblem p = few_problem(7000 + static_cast<uint64_t>(round));
    if (p.g.ow <= 0 || p.g.oh <= 0) continue;
    p.pad = 0;
    const Tensor x = test::random_tensor(p.image(false), dtypes::fp32, 1, -3, 5);
    const DType wd = p.draw.flip() ? dtypes::fp32 : dtypes::bint1;
    const Tensor w = test::random_tensor({p.o, p.g.taps() * p.c}, wd, 2);
    p.sum(x.elements(), w.elements(), false);
    for (const FewIsa* unit : units()) {
      const Tensor y = Tensor::full({p.rows(false), p.o}, dtypes::fp32, -77);
      REQUIRE(conv::conv_few(p.args(x, w, false, y), *unit));
      require_near(y, p.sums, p.sizes, static_cast<double>(p.g.taps() * p.c));
    }
  }
}

double rounded(double x) { return static_cast<double>(bf16_to_float(bf16_from_float(static_cast<float>(x)))); }

TEST_CASE("direct gradients of weights of few channels are those of direct loops for any number of threads", "[cpu]") {
  const int before = num_threads();
  for (int round = 0; round < 100; ++round) {
    DirectProblem p = few_problem(8000 + static_cast<uint64_t>(round));
    if (p.g.ow <= 0 || p.g.oh <= 0) continue;
    if (round % 8 == 0) p.images = p.draw(17, 40);
    const DType xd = p.draw.flip() ? dtypes::fp32 : kImages[p.draw(0, 1)];
    const bool bf16 = p.draw.flip(), folded = p.draw.flip();
    const int64_t windows = p.images * p.g.windows(), k = p.g.taps() * p.c;
    const Tensor x = test::random_tensor(p.image(false), xd, 1),
                 gy = test::random_tensor({windows, p.o}, dtypes::fp32, 2, -3, 5);
    const std::vector<double> xv = x.elements();
    std::vector<double> gv = gy.elements(), sums(static_cast<size_t>(p.o * k), 0), sizes = sums;
    const float fold = 0.7f;
    for (double& v : gv) {
      if (folded) v = static_cast<double>(static_cast<float>(v) * fold);
      if (bf16) v = rounded(v);
    }
    test::for_taps(p.g, p.images, [&](int64_t m, int64_t pixel, int64_t tap) {
      for (int64_t i = 0; i < p.c; ++i)
        for (int64_t j = 0; j < p.o; ++j) {
          const double v = pixel < 0 ? p.pad : xv[static_cast<size_t>(pixel * p.c + i)];
          const double term = v * gv[static_cast<size_t>(m * p.o + j)];
          sums[static_cast<size_t>(j * k + tap * p.c + i)] += term;
          sizes[static_cast<size_t>(j * k + tap * p.c + i)] += std::abs(term);
        }
    });
    std::vector<double> first;
    for (const FewIsa* unit : units())
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        const Tensor gw = Tensor::full({p.o, k}, dtypes::fp32, -77);
        DirectWeightsArgs args = p.weights_args(x, gy, gw);
        args.fold = folded ? &fold : nullptr;
        args.bf16 = bf16;
        REQUIRE(conv::conv_weights_few(args, *unit));
        INFO("round " << round << " x " << xd << " c " << p.c << " o " << p.o);
        require_near(gw, sums, sizes, static_cast<double>(windows));
        if (first.empty()) first = gw.elements();
        REQUIRE(gw.elements() == first);
      }
  }
  set_num_threads(before);
}

TEST_CASE("direct convolutions of few channels refuse what they do not know", "[cpu]") {
  DirectProblem p(1);
  p.c = 3;
  const Tensor x = test::random_tensor(p.image(false), dtypes::fp32, 1),
               w = test::random_tensor({p.o, p.g.taps() * p.c}, dtypes::fp32, 2),
               gy = Tensor::full({p.rows(false), p.o}, dtypes::fp32, 5),
               gw = Tensor::full({p.o, p.g.taps() * p.c}, dtypes::fp32, 5),
               integers = Tensor::full({p.rows(false), p.o}, dtypes::int32, 5);
  const FewIsa& unit = conv::few_emulated();
  REQUIRE_FALSE(conv::conv_few(p.args(x, w, false, integers), unit));
  const BitsMode before = bits_mode();
  set_bits_mode(BitsMode::kStrict);
  const bool strict =
      conv::conv_few(p.args(x, w, false, gy), unit) || conv::conv_weights_few(p.weights_args(x, gy, gw), unit);
  set_bits_mode(before);
  REQUIRE_FALSE(strict);
  DirectWeightsArgs args = p.weights_args(x, gy, gw);
  args.geometry.dilation_y = 2;
  REQUIRE_FALSE(conv::conv_weights_few(args, unit));
  for (const Tensor* t : {&gy, &gw, &integers})
    for (const double v : t->elements()) REQUIRE(v == 5);
}

}  // namespace
}  // namespace bitgrad
