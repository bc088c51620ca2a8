// Op quantize_learned: codes, and the gradients of LSQ, LSQ+ and PACT of docs/numerics.md section 3, evaluated here in
// fp64 over fp32 quotients.
#include <cmath>
#include <functional>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

QuantSpec spec_of(const std::string& scheme, DType dtype, const Granularity& granularity = {}) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  spec.granularity = granularity;
  return spec;
}

Tensor numbers_of(const Shape& shape, const std::vector<double>& numbers) {
  return Tensor::from_elements(shape, dtypes::fp32, numbers);
}

struct Result {
  Tensor y, gx;
  std::vector<Tensor> learned;
};

Result run(const Tensor& x, const QuantSpec& spec, const std::vector<Tensor>& learned, const Tensor& seed,
           DType x_edge = dtypes::fp32, const QuantizeOpOptions& options = {}) {
  std::vector<AccumulateSink> sinks(learned.size() + 1);
  Tape tape;
  std::vector<Var> leaves;
  for (size_t i = 0; i < learned.size(); ++i) leaves.push_back(tape.leaf(learned[i], &sinks[i + 1], dtypes::fp32));
  const Var y = quantize_learned(tape.leaf(x, &sinks[0], x_edge), spec, leaves, options);
  tape.backward({y}, {seed});
  Result out{y.value(), sinks[0].grad(), {}};
  for (size_t i = 1; i < sinks.size(); ++i) out.learned.push_back(sinks[i].grad());
  return out;
}

// One element of LSQ and LSQ+.
struct Element {
  double code = 0;
  bool passes = false;
  double ds = 0, dm = 0;  // per unit of g
};
Element lsq_element(float x, float s, float m, int64_t qmin, int64_t qmax) {
  const double lo = static_cast<double>(qmin), hi = static_cast<double>(qmax);
  const float u = (x - m) / s;
  const double rounded = std::nearbyint(static_cast<double>(u));
  Element e;
  e.code = std::min(std::max(rounded, lo), hi);
  const bool inside = static_cast<double>(u) > lo && static_cast<double>(u) < hi;
  e.passes = inside;
  e.ds = inside ? e.code - static_cast<double>(u) : (static_cast<double>(u) <= lo ? lo : hi);
  e.dm = inside ? 0 : 1;
  return e;
}

// "" when codes and all gradients are those of the formulas.
std::string check_lsq(const std::string& scheme, DType dtype, const Shape& shape, bool per_channel, double spread) {
  const bool plus = scheme == "lsq_plus";
  const int64_t rows = shape.rows(), cols = shape.cols(), blocks = per_channel ? cols : 1;
  const QuantSpec spec = spec_of(scheme, dtype, per_channel ? Granularity::channel(1) : Granularity::tensor());
  const DTypeInfo& info = dtype.info();
  const Tensor x = test::random_tensor(shape, dtypes::fp32, 3, -spread, spread);
  const Tensor g = test::random_tensor(shape, dtypes::fp32, 4);
  const Tensor step = test::random_tensor({blocks}, dtypes::fp32, 5, 0.05, 0.4);
  const Tensor offset = test::random_tensor({blocks}, dtypes::fp32, 6, -0.3, 0.3);
  const Result got = run(x, spec, plus ? std::vector<Tensor>{step, offset} : std::vector<Tensor>{step}, g);
  std::vector<double> ds(static_cast<size_t>(blocks)), dm(ds);
  const std::vector<double> codes = got.y.elements(), values = got.y.values();
  for (int64_t i = 0; i < rows * cols; ++i) {
    const size_t j = static_cast<size_t>(per_channel ? i % cols : 0), at = static_cast<size_t>(i);
    const float s = step.as<float>()[j], m = plus ? offset.as<float>()[j] : 0.0f;
    const Element e = lsq_element(x.as<float>()[i], s, m, info.qmin, info.qmax);
    if (codes[at] != e.code) return concat("code ", i, " is ", codes[at], ", expected ", e.code);
    float value = s * static_cast<float>(e.code);
    if (plus) value = value + m;
    if (values[at] != static_cast<double>(value)) return concat("value ", i, " is ", values[at], ", expected ", value);
    const float gx = e.passes ? g.as<float>()[i] : 0.0f;
    if (got.gx.as<float>()[i] != gx) return concat("gx ", i, " is ", got.gx.as<float>()[i], ", expected ", gx);
    ds[j] += static_cast<double>(g.as<float>()[i]) * e.ds;
    dm[j] += static_cast<double>(g.as<float>()[i]) * e.dm;
  }
  const double n = static_cast<double>(per_channel ? 1 : cols);
  const double divisor = std::sqrt(n * static_cast<double>(info.qmax));
  for (size_t j = 0; j < ds.size(); ++j) {
    const auto near = [&](const Tensor& t, double want) {
      return std::fabs(static_cast<double>(t.as<float>()[j]) - want) <= 2e-5 * std::max(1.0, std::fabs(want));
    };
    if (!near(got.learned[0], ds[j] / divisor))
      return concat("step ", j, ": ", got.learned[0].as<float>()[j], ", expected ", ds[j] / divisor);
    if (plus && !near(got.learned[1], dm[j] / divisor))
      return concat("offset ", j, ": ", got.learned[1].as<float>()[j], ", expected ", dm[j] / divisor);
  }
  return "";
}

TEST_CASE("LSQ and LSQ+ give the codes and all the gradients of their formulas") {
  for (const char* scheme : {"lsq", "lsq_plus"})
    for (const DType d : {dtypes::int2, dtypes::int4, dtypes::int8, dtypes::uint2, dtypes::uint4, dtypes::uint8})
      for (const Shape& shape : {Shape{1, 1}, Shape{5, 67}, Shape{33, 100}})
        for (const bool per_channel : {false, true})
          for (const double spread : {0.5, 6.0}) {
            INFO(scheme << ' ' << d << ' ' << shape << (per_channel ? " per channel" : " per tensor") << ' ' << spread);
            CHECK(check_lsq(scheme, d, shape, per_channel, spread) == "");
          }
}

TEST_CASE("PACT clips to [0, alpha], and alpha gets the sum of the gradients at and above it") {
  for (const DType d : {dtypes::uint2, dtypes::uint4, dtypes::uint8}) {
    const float alpha = 2.5f, s = alpha / static_cast<float>(d.info().qmax);
    // Clear of the ends by more than half a step, which the rule clip counts in; alpha itself is at the end.
    std::vector<double> x;
    for (const double v : test::random_numbers(dtypes::fp32, 400, 8, -6, 6))
      if ((v < -1.5 || v > 0) && (v < 2.5 || v > 4)) x.push_back(v);
    x.push_back(2.5);
    const int64_t n = static_cast<int64_t>(x.size());
    const Tensor g = test::random_tensor({1, n}, dtypes::fp32, 9);
    const Tensor numbers = numbers_of({1, n}, x);
    const Result got = run(numbers, spec_of("pact", d), {numbers_of({1}, {2.5})}, g);
    int wrong = 0;
    double sum = 0;
    const std::vector<double> codes = got.y.elements();
    for (int64_t i = 0; i < n; ++i) {
      const float v = numbers.as<float>()[i], gi = g.as<float>()[i];
      const float q = std::nearbyint(std::min(std::max(v, 0.0f), alpha) * (1.0f / s));
      wrong += codes[static_cast<size_t>(i)] != static_cast<double>(q);
      if (v != alpha) wrong += got.gx.as<float>()[i] != (v > 0 && v < alpha ? gi : 0.0f);
      if (v >= alpha) sum += static_cast<double>(gi);
    }
    CHECK(wrong == 0);
    CHECK(std::fabs(static_cast<double>(got.learned[0].item()) - sum) <= 1e-5 * std::max(1.0, std::fabs(sum)));
    CHECK(got.y.values().back() == static_cast<double>(s * static_cast<float>(d.info().qmax)));
  }
}

TEST_CASE("the gradient of a step is a sum over the batch, so two halves add up to the whole") {
  const QuantSpec spec = spec_of("lsq", dtypes::int4);
  const Tensor x = test::random_tensor({8, 40}, dtypes::fp32, 3), g = test::random_tensor({8, 40}, dtypes::fp32, 4);
  const Tensor step = numbers_of({1}, {0.1});
  const double full = run(x, spec, {step}, g).learned[0].item();
  const double halves = run(x.row_slice(0, 4), spec, {step}, g.row_slice(0, 4)).learned[0].item() +
                        run(x.row_slice(4, 8), spec, {step}, g.row_slice(4, 8)).learned[0].item();
  CHECK(std::fabs(full - halves) < 1e-5);
  CHECK(std::fabs(full) > 1e-3);
}

TEST_CASE(
    "int32 sums with a scale are coded by learned numbers as requantize does, with the gradients of their values") {
  const Tensor acc = test::random_tensor({6, 50}, dtypes::int32, 11);  // -1000 .. 1000
  QuantParams in;
  in.scheme = "product";
  in.scale = std::make_shared<const Tensor>(numbers_of({1}, {0.0078125}));
  const Tensor x = acc.with_quant(std::make_shared<const QuantParams>(in));
  const Tensor as_numbers = dequantize(Var(x)).value(), g = test::random_tensor({6, 50}, dtypes::fp32, 12);
  const QuantSpec spec = spec_of("lsq", dtypes::int4);
  const Tensor step = numbers_of({1}, {0.5});  // powers of two: the quotient is the same number in both ways
  const Result integers = run(x, spec, {step}, g), floats = run(as_numbers, spec, {step}, g);
  CHECK(integers.y.dtype() == dtypes::int4);
  CHECK(integers.y.values() == floats.y.values());
  CHECK(test::bits_of(integers.gx) == test::bits_of(floats.gx));
  CHECK(test::bits_of(integers.learned[0]) == test::bits_of(floats.learned[0]));
}

TEST_CASE("at the ends of the codes LSQ passes nothing, for any draw and any int32 rounding") {
  // u = x / s in quarters from 1 beyond qmin to 1 beyond qmax.
  const QuantSpec nearest = spec_of("lsq", dtypes::int3);  // -4 .. 3
  std::vector<double> quarters, expected;
  for (int q = -20; q <= 16; ++q) {
    quarters.push_back(q);
    expected.push_back(q > -16 && q < 12 ? 1 : 0);
  }
  const int64_t n = static_cast<int64_t>(quarters.size());
  const Tensor g = Tensor::full({1, n}, dtypes::fp32, 1), step = numbers_of({1}, {2.0});
  const Tensor acc = Tensor::from_elements({1, n}, dtypes::int32, quarters);
  QuantParams in;
  in.scheme = "product";
  in.scale = std::make_shared<const Tensor>(numbers_of({1}, {0.5}));
  const Tensor integers = acc.with_quant(std::make_shared<const QuantParams>(in));
  const Tensor numbers = dequantize(Var(integers)).value();
  CHECK(run(numbers, nearest, {step}, g).gx.elements() == expected);
  CHECK(run(integers, nearest, {step}, g).gx.elements() == expected);
  QuantSpec drawn = nearest;
  drawn.rounding = Rounding::kStochastic;
  bool other_codes = false;
  for (uint32_t at = 0; at < 8; ++at) {
    const RandomStream draws{7, Purpose::kActivation, 3, at};
    QuantizeOpOptions options;
    options.sr = &draws;
    const Result got = run(numbers, drawn, {step}, g, dtypes::fp32, options);
    CHECK(got.gx.elements() == expected);
    other_codes = other_codes || got.y.elements() != run(numbers, nearest, {step}, g).y.elements();
  }
  CHECK(other_codes);
}

TEST_CASE("gradients leave in the dtype of the edge, constants get none, an empty batch gives zeros") {
  const QuantSpec spec = spec_of("lsq", dtypes::int4);
  const Tensor x = test::random_tensor({3, 8}, dtypes::fp32, 3), g = test::random_tensor({3, 8}, dtypes::fp32, 4);
  const Tensor step = numbers_of({1}, {0.3});
  const Tensor narrow = run(x, spec, {step}, g, dtypes::bf16).gx, full = run(x, spec, {step}, g).gx;
  REQUIRE(narrow.dtype() == dtypes::bf16);
  for (int64_t i = 0; i < 24; ++i) CHECK(narrow.as<uint16_t>()[i] == bf16_from_float(full.as<float>()[i]));
  {
    AccumulateSink sink;
    Tape tape;
    const Var y = quantize_learned(x, spec, {tape.leaf(step, &sink, dtypes::fp32)});  // x is data
    tape.backward({y}, {g});
    CHECK(sink.grad().item() == run(x, spec, {step}, g).learned[0].item());
  }
  {
    AccumulateSink sink;
    Tape tape;
    const Var y = quantize_learned(tape.leaf(x, &sink, dtypes::fp32), spec, {step});  // a frozen step
    tape.backward({y}, {g});
    CHECK(test::bits_of(sink.grad()) == test::bits_of(full));
  }
  const Tensor none = Tensor::zeros({0, 8}, dtypes::fp32);
  const Result empty = run(none, spec, {step}, none);
  CHECK(empty.y.shape() == Shape{0, 8});
  CHECK(empty.learned[0].item() == 0);
  CHECK_FALSE(quantize_learned(x, spec, {step}).tracked());
}

TEST_CASE("one and two threads give the same bits of codes and gradients") {
  const int before = num_threads();
  const Tensor x = test::random_tensor({300, 257}, dtypes::fp32, 3),
               g = test::random_tensor({300, 257}, dtypes::fp32, 4);
  for (const bool per_channel : {false, true}) {
    const QuantSpec spec =
        spec_of("lsq_plus", dtypes::int4, per_channel ? Granularity::channel(1) : Granularity::tensor());
    const int64_t blocks = per_channel ? 257 : 1;
    const std::vector<Tensor> learned{Tensor::full({blocks}, dtypes::fp32, 0.07),
                                      Tensor::full({blocks}, dtypes::fp32, 0.01)};
    set_num_threads(1);
    const Result one = run(x, spec, learned, g);
    set_num_threads(2);
    const Result two = run(x, spec, learned, g);
    CHECK(one.y.elements() == two.y.elements());
    CHECK(test::bits_of(one.gx) == test::bits_of(two.gx));
    for (size_t i = 0; i < 2; ++i) CHECK(test::bits_of(one.learned[i]) == test::bits_of(two.learned[i]));
  }
  set_num_threads(before);
}

TEST_CASE("quantize_learned refuses what does not fit, with an alternative") {
  const Tensor x = Tensor::zeros({2, 3}, dtypes::fp32), one = Tensor::full({1}, dtypes::fp32, 1);
  const QuantSpec lsq = spec_of("lsq", dtypes::int4);
  const auto error = [](const Tensor& t, const QuantSpec& spec, const std::vector<Var>& learned) {
    return error_of([&] { quantize_learned(t, spec, learned); });
  };
  CHECK(contains(error(x, spec_of("symmetric", dtypes::int4), {one}),
                 "[quantize_learned] scheme symmetric learns nothing: got 1 learned tensors. Use quantize."));
  CHECK(contains(error(x, lsq, {one, one}), "scheme lsq learns 1 parts: got 2 tensors"));
  CHECK(
      contains(error(x, lsq, {Tensor::zeros({3}, dtypes::fp32)}), "the learned step: got [3] fp32, expected [1] fp32"));
  CHECK(contains(error(x, lsq, {Tensor::zeros({1}, dtypes::int32)}), "got [1] int32, expected [1] fp32"));
  CHECK(contains(error(x, spec_of("lsq", dtypes::int4, Granularity::channel(1)), {one}), "expected [3] fp32"));
  CHECK(contains(error(x, spec_of("lsq", dtypes::int4, Granularity::token()), {one}),
                 "granularity of learned values: got token"));
  CHECK(contains(error(x, spec_of("lsq", dtypes::int4, Granularity::channel(0)), {one}),
                 "learned values of activations are per tensor or per channel(1): got channel(0)"));
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(contains(error(Tensor::zeros({2, 3}, dtypes::fp64), lsq, {one}), "got [2,3] fp64, expected fp32"));
  CHECK(contains(error(Tensor::zeros({2, 3}, dtypes::int8), lsq, {one}), "got [2,3] int8, expected fp32"));
  QuantizeOpOptions given;
  given.params = std::make_shared<const QuantParams>();
  CHECK(contains(error_of([&] { quantize_learned(x, lsq, {one}, given); }),
                 "scales were passed together with the learned values"));
}

}  // namespace
}  // namespace bitgrad
