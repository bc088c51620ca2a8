// Convolutions on a device: bits of the CPU, forward and backward, for integers and, in strict, for floats.
#include "bitgrad/ops/conv.h"
#include "cuda/same_as_cpu.h"
#include "support/conv_reference.h"
#include "support/shape_count.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

Tensor no_bias;

// y, gx, gw, gbias of conv2d in these modes, each gradient written, then added to.
std::string conv_difference(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& bias,
                            const ProductModes& modes = {}, DType grad = dtypes::fp32, float bad = 0) {
  Tensor seed = host_numbers(g.y_shape(), 31, 0.1);
  if (bad != 0) seed.as<float>()[seed.numel() / 2] = bad;
  return device_difference([&] {
    AccumulateSink gx, gw, gb;
    Results out;
    for (int i = 0; i < 2; ++i) {
      Tape tape;
      const Var b = bias.defined() ? tape.leaf(here(bias), &gb, dtypes::fp32) : Var();
      const Var y = conv2d(tape.leaf(here(x), &gx, grad), tape.leaf(here(w), &gw, grad), b, g.options, modes);
      tape.backward({y}, {here(seed)});
      out.push_back(y.value());
    }
    for (const AccumulateSink* s : {&gx, &gw, &gb}) out.push_back(s->grad());
    return out;
  });
}

struct ConvPair {
  const char* name;
  DType x, w;
  bool zero_x = false, zero_w = false, channels = false;
};
const ConvPair kPairs[] = {{"bint1 x bint1", dtypes::bint1, dtypes::bint1},
                           {"ternary x bint1", dtypes::ternary, dtypes::bint1},
                           {"int8 x int4, zero points", dtypes::int8, dtypes::int4, true, true},
                           {"uint4 x ternary", dtypes::uint4, dtypes::ternary, true},
                           {"int8 per channel(1) x int8", dtypes::int8, dtypes::int8, false, false, true},
                           {"fp32 x bint1", dtypes::fp32, dtypes::bint1},
                           {"fp32 x int4", dtypes::fp32, dtypes::int4, false, true},
                           {"fp32 x fp32", dtypes::fp32, dtypes::fp32},
                           {"bint1 x fp32", dtypes::bint1, dtypes::fp32}};

Tensor device_operand(const Shape& shape, DType dtype, uint64_t seed, const Granularity& granularity, bool zero) {
  if (!dtype.is_code()) return host_numbers(shape, seed);
  return with_scales(host_codes(shape, dtype, seed), granularity, zero);
}

bool int8_takes(const Tensor& t) { return t.dtype().is_code(); }

}  // namespace

TEST_CASE("convolutions of random geometries have the CPU's bits on a device, in every mode") {
  const RandomStream draws{5, Purpose::kGradient, 3, 1};
  Rng rng(13);
  for (int i = 0; i < shape_count(54); ++i) {
    ConvGeometry g = random_geometry(rng, 8000);
    const ConvPair& p = kPairs[static_cast<size_t>(i) % std::size(kPairs)];
    if (p.x != dtypes::bint1) g.options.pad_value = 0;
    const Tensor x = device_operand(g.x_shape(), p.x, rng() % 1000,
                                    p.channels ? Granularity::channel(1) : Granularity::tensor(), p.zero_x),
                 w = device_operand(g.w_shape(), p.w, rng() % 1000, Granularity::channel(0), p.zero_w),
                 bias = host_numbers({g.o}, 5);
    const ProductMode modes[] = {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8};
    ProductModes m;
    m.gx = modes[uniform_int(rng, 0, int8_takes(w) ? 2 : 1)];
    m.gw = modes[uniform_int(rng, 0, int8_takes(x) ? 2 : 1)];
    m.sr = i % 2 == 0 ? &draws : nullptr;
    INFO(p.name << ": " << g.text() << ", gx " << mode_name(m.gx) << ", gw " << mode_name(m.gw));
    CHECK(conv_difference(g, x, w, i % 3 == 0 ? no_bias : bias, m, i % 4 == 0 ? dtypes::bf16 : dtypes::fp32) == "");
  }
}

TEST_CASE("convolutions past the blocks of a product have the CPU's bits on a device") {
  const ConvGeometry g{2, 17, 17, 20, 18, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}};
  for (const ConvPair& p : kPairs) {
    const Tensor x = device_operand(g.x_shape(), p.x, 1, Granularity::tensor(), p.zero_x),
                 w = device_operand(g.w_shape(), p.w, 2, Granularity::channel(0), p.zero_w);
    ProductModes m;
    if (int8_takes(w)) m.gx = ProductMode::kInt8;
    if (int8_takes(x)) m.gw = ProductMode::kInt8;
    INFO(p.name);
    CHECK(conv_difference(g, x, w, host_numbers({18}, 5)) == "");
    CHECK(conv_difference(g, x, w, no_bias, m) == "");
  }
}

TEST_CASE("an image whose gradient is not finite spoils its own gradients only, on a device too") {
  const ConvGeometry g{3, 4, 5, 6, 7, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}};
  ProductModes m;
  m.gx = m.gw = ProductMode::kInt8;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const ConvPair& p : kPairs) {
      if (!p.x.is_code() || !p.w.is_code()) continue;
      INFO(p.name << ' ' << bad);
      CHECK(conv_difference(g, device_operand(g.x_shape(), p.x, 1, Granularity::tensor(), p.zero_x),
                            device_operand(g.w_shape(), p.w, 2, Granularity::channel(0), p.zero_w), no_bias, m,
                            dtypes::fp32, bad) == "");
    }
}

TEST_CASE("integer and simulated convolutions have the CPU's bits on a device") {
  Rng rng(14);
  for (int i = 0; i < 12; ++i) {
    ConvGeometry g = random_geometry(rng, 8000);
    const DType dx = i % 2 == 0 ? dtypes::bint1 : dtypes::int8, dw = i % 3 == 0 ? dtypes::bint1 : dtypes::int4;
    if (dx != dtypes::bint1 || i % 4 == 0) g.options.pad_value = 0;
    const Tensor x = device_operand(g.x_shape(), dx, 1, Granularity::tensor(), false),
                 w = device_operand(g.w_shape(), dw, 2, Granularity::channel(0), false), bias = host_numbers({g.o}, 5);
    for (const bool integer : {true, false}) {
      if (!integer && g.options.pad_value != 0) continue;
      INFO(g.text() << (integer ? ", integer" : ", simulated"));
      CHECK(device_difference([&] {
              Tape tape;
              AccumulateSink gx, gw, gb;
              const Var a = tape.leaf(here(x), &gx, dtypes::fp32), b = tape.leaf(here(w), &gw, dtypes::fp32),
                        c = tape.leaf(here(bias), &gb, dtypes::fp32);
              const Var y = integer ? integer_conv2d(a, b, c, g.options) : conv2d_simulated(a, b, c, g.options);
              tape.backward({y}, {here(host_numbers(y.shape(), 31))});
              return Results{y.value(), gx.grad(), gw.grad(), gb.grad()};
            }) == "");
    }
  }
}
