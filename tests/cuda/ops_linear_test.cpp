// Products of a linear layer on a device, in every mode of the backward.
#include <limits>

#include "bitgrad/ops/ops.h"
#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

Tensor nothing;

// y, gx, gw, gbias of linear in these modes.
std::string linear_difference(const Tensor& x, const Tensor& w, const Tensor& bias, const ProductModes& modes,
                              DType grad = dtypes::fp32, const Tensor& seed = nothing) {
  return device_difference([&] {
    Tape tape;
    AccumulateSink gx, gw, gb;
    Results out;
    for (int i = 0; i < 2; ++i) {  // written, then added
      Tape inner;
      const Var b = bias.defined() ? inner.leaf(here(bias), &gb, dtypes::fp32) : Var();
      const Var y = linear(inner.leaf(here(x), &gx, grad), inner.leaf(here(w), &gw, grad), b, modes);
      inner.backward({y}, {here(seed.defined() ? seed : host_numbers(y.shape(), 31, 0.1))});
      out.push_back(y.value());
    }
    for (const AccumulateSink* s : {&gx, &gw, &gb}) out.push_back(s->grad());
    return out;
  });
}

struct Pair {
  std::string name;
  Tensor x, w;
};

std::vector<Pair> int8_pairs(int64_t n, int64_t i, int64_t o) {
  const auto codes = [](int64_t r, int64_t c, DType d, uint64_t s) { return host_codes({r, c}, d, s); };
  return {
      {"bint1 x bint1", with_scales(codes(n, i, dtypes::bint1, 1), Granularity::tensor()),
       with_scales(codes(o, i, dtypes::bint1, 2), Granularity::channel(0))},
      {"int8 x int4, zero points along k", with_scales(codes(n, i, dtypes::int8, 1), Granularity::token(), true),
       with_scales(codes(o, i, dtypes::int4, 2), Granularity::channel(0), true)},
      {"uint4 x ternary", with_scales(codes(n, i, dtypes::uint4, 1), Granularity::tensor(), true),
       with_scales(codes(o, i, dtypes::ternary, 2), Granularity::tensor())},
      {"int8 x int8 per channel(1)", with_scales(codes(n, i, dtypes::int8, 1), Granularity::channel(1)),
       with_scales(codes(o, i, dtypes::int8, 2), Granularity::channel(1))},
  };
}

TEST_CASE("products of floats and of codes, forward and backward in fp32") {
  const Tensor bias = host_numbers({21}, 5);
  for (const Pair& p : int8_pairs(19, 70, 21)) {
    INFO(p.name);
    CHECK(linear_difference(p.x, p.w, bias, {}) == "");
    CHECK(linear_difference(host_numbers({19, 70}, 1), p.w, bias, {}) == "");
  }
  const Tensor x = host_numbers({19, 70}, 1);
  CHECK(linear_difference(x, host_numbers({21, 70}, 2), bias, {}) == "");
  CHECK(linear_difference(x, host_numbers({21, 70}, 2), {}, {}, dtypes::bf16) == "");
  CHECK(linear_difference(x, with_scales(host_codes({21, 70}, dtypes::int4, 2), Granularity::groups(32)), bias, {}) ==
        "");
  CHECK(linear_difference(x, with_scales(host_codes({21, 70}, dtypes::uint4, 2), Granularity::groups(32), false, true),
                          bias, {}) == "");
}

TEST_CASE("backward products in bf16 fold the scales of what they contract") {
  ProductModes modes;
  modes.gx = modes.gw = ProductMode::kBf16;
  for (const Pair& p : int8_pairs(19, 70, 21))
    for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
      INFO(p.name << ' ' << grad.name());
      CHECK(linear_difference(p.x, p.w, {}, modes, grad) == "");
    }
  CHECK(linear_difference(host_numbers({19, 70}, 1), host_numbers({21, 70}, 2), {}, modes) == "");
}

TEST_CASE("backward products in int8: folded scales, zero points along k, draws") {
  const RandomStream draws{5, Purpose::kGradient, 3, 1};
  ProductModes modes;
  modes.gx = modes.gw = ProductMode::kInt8;
  for (const bool stochastic : {false, true})
    for (const Pair& p : int8_pairs(270, 40, 18))
      for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
        INFO(p.name << ' ' << grad.name() << ' ' << stochastic);
        modes.sr = stochastic ? &draws : nullptr;
        CHECK(linear_difference(p.x, p.w, host_numbers({18}, 5), modes, grad) == "");
      }
}

TEST_CASE("a product in int8 takes groups of columns that begin inside a word") {
  const RandomStream draws{5, Purpose::kGradient, 3, 1};
  ProductModes modes;
  modes.gx = ProductMode::kInt8;
  modes.gx_per_group = true;
  modes.sr = &draws;
  for (const DType dtype : {dtypes::int3, dtypes::int4, dtypes::bint1, dtypes::int8})
    for (const int64_t group : {64, 75}) {
      INFO(dtype.name() << ' ' << group);
      const Tensor w = with_scales(host_codes({21, 200}, dtype, 2), Granularity::groups(group), dtype == dtypes::int4);
      CHECK(linear_difference(host_numbers({19, 200}, 1), w, {}, modes) == "");
      CHECK(linear_difference(host_numbers({19, 200}, 1), w, {}, modes, dtypes::bf16) == "");
    }
}

TEST_CASE("a line of gy that is not finite spoils its own gradients only") {
  ProductModes modes;
  modes.gx = modes.gw = ProductMode::kInt8;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const Pair& p : int8_pairs(9, 30, 12)) {
      INFO(p.name << ' ' << bad);
      const Tensor seed = host_numbers({9, 12}, 4, 0.1);
      seed.as<float>()[5 * 12 + 7] = bad;
      CHECK(linear_difference(p.x, p.w, {}, modes, dtypes::fp32, seed) == "");
    }
}

// Takes rows on the CPU; a device gives none.
class AskedRows final : public GradRows {
 public:
  int64_t block_rows() const override { return 4; }
  void begin() override {}
  void consume(int64_t, const Tensor&) override {}
  void done() override {}
  void declined(std::string_view text) override { why = text; }
  std::string why;
};

TEST_CASE("a gradient that is asked for in rows comes as a whole from a device, which says so") {
  const Tensor x = host_numbers({19, 70}, 1), w = host_numbers({21, 70}, 2);
  const Tensor ids = Tensor::from_elements({2, 2}, dtypes::int32, std::vector<double>{0, 2, 3, 1});
  const DeviceGuard guard(gpu());
  for (const bool table : {false, true}) {
    AskedRows rows;
    AccumulateSink sink;
    sink.set_rows(&rows);
    Tape tape;
    const Var leaf = tape.leaf(here(w), &sink, dtypes::fp32);
    const Var y = table ? embedding(Var(here(ids)), leaf) : linear(Var(here(x)), leaf);
    tape.backward({y}, {here(host_numbers(y.shape(), 3))});
    CHECK(contains(rows.why, "its gradient was not produced in blocks of rows: cuda:0 computes whole tensors"));
    CHECK(sink.grad().shape() == w.shape());
  }
}

TEST_CASE("the float simulation and the layer that quantizes its input at run time") {
  const Tensor x = host_numbers({19, 70}, 1), bias = host_numbers({21}, 5);
  const Tensor w = with_scales(host_codes({21, 70}, dtypes::int4, 2), Granularity::channel(0));
  const auto run = [&](const std::function<Var(const Var&, const Var&, const Var&)>& op) {
    return device_difference([&] {
      Tape tape;
      AccumulateSink gx, gw, gb;
      const Var y = op(tape.leaf(here(x), &gx, dtypes::fp32), tape.leaf(here(w), &gw, dtypes::fp32),
                       tape.leaf(here(bias), &gb, dtypes::fp32));
      tape.backward({y}, {here(host_numbers(y.shape(), 31))});
      return Results{y.value(), gx.grad(), gw.grad(), gb.grad()};
    });
  };
  CHECK(run([](const Var& a, const Var& b, const Var& c) { return linear_simulated(a, b, c); }) == "");
  for (const ProductMode forward : {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8}) {
    INFO(mode_name(forward));
    DynamicLinearOptions options;
    options.forward = forward;
    if (forward != ProductMode::kInt8) options.gw = ProductMode::kBf16;
    CHECK(run([&](const Var& a, const Var& b, const Var& c) { return quantized_linear_dynamic(a, b, c, options); }) ==
          "");
  }
}

TEST_CASE("matmul of floats and codes, batched and with a shared factor, forward and backward") {
  const auto difference = [](const Tensor& a, const Tensor& b, bool transposed) {
    return device_difference([&] {
      AccumulateSink ga, gb;
      Results out;
      for (int i = 0; i < 2; ++i) {  // written, then added
        Tape tape;
        const Var y = matmul(tape.leaf(here(a), &ga, dtypes::fp32), tape.leaf(here(b), &gb, dtypes::fp32),
                             {.transposed_b = transposed});
        tape.backward({y}, {here(host_numbers(y.shape(), 31, 0.1))});
        out.push_back(y.value());
      }
      for (const AccumulateSink* s : {&ga, &gb}) out.push_back(s->grad());
      return out;
    });
  };
  const Tensor a = host_numbers({5, 9, 33}, 1);
  CHECK(difference(a, host_numbers({5, 33, 17}, 2), false) == "");
  CHECK(difference(a, host_numbers({5, 17, 33}, 2), true) == "");
  CHECK(difference(a, host_numbers({33, 17}, 2), false) == "");
  for (const DType d : {dtypes::bint1, dtypes::ternary, dtypes::int4, dtypes::int8}) {
    INFO(d);
    const Tensor codes = host_codes({5, 17, 33}, d, 3);
    CHECK(difference(a, codes, true) == "");
    CHECK(difference(host_codes({5, 9, 33}, dtypes::int8, 4), codes, true) == "");
    CHECK(difference(host_codes({5, 9, 17}, d, 5), codes, false) == "");
  }
}

}  // namespace
