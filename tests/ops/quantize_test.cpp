// Ops quantize and dequantize: codes, kept memory, and gradients that equal the straight-through rule of
// docs/numerics.md section 3.
#include "kernels/quantize.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/scheme.h"
#include "kernels/flag.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

struct Result {
  Tensor codes, gradient;
  bool reached;
};

// quantize on a leaf, the seed on its output. y_edge: the dtype of the gradient that comes in, x_edge: of the one that
// leaves.
Result run(const Tensor& x, const QuantSpec& spec, const std::vector<float>& seed, DType y_edge, DType x_edge,
           const QuantizeOpOptions& options = {}) {
  AccumulateSink sink;
  Tape tape;
  Var y = quantize(tape.leaf(x, &sink, x_edge), spec, options);
  y.want_grad(y_edge);
  tape.backward({y}, {Tensor::from_elements(x.shape(), y_edge, std::vector<double>(seed.begin(), seed.end()))});
  return {y.value(), sink.grad(), sink.filled()};
}

// Elements where the gradient is not that of the rule.
int wrong_gradients(const QuantSpec& spec, const Shape& shape, DType y_edge, DType x_edge) {
  const std::vector<float> x = test::numbers_for_test(shape.numel(), 1.6f, 31);
  std::vector<float> g = test::numbers_for_test(shape.numel(), 3, 32);
  if (y_edge == dtypes::bf16)
    for (float& v : g) v = bf16_to_float(bf16_from_float(v));
  const Result got = run(test::tensor_of(shape, x), spec, g, y_edge, x_edge);
  const SteRule rule = ste_rule(spec);
  if (rule == SteRule::kNone) return got.reached ? 1 : 0;
  const std::vector<test::BlockParams> blocks = test::fit_blocks(spec, x, shape.rows(), shape.cols());
  const std::vector<double> gradient = got.gradient.elements();
  int wrong = got.gradient.dtype() != x_edge;
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t e = static_cast<int64_t>(i);
    const test::BlockParams& p = blocks[static_cast<size_t>(
        test::block_of(spec.granularity, shape.rows(), shape.cols(), e / shape.cols(), e % shape.cols()))];
    float want = spec.alpha ? g[i] * p.s : g[i];
    if (rule == SteRule::kClip && !test::code_of(spec, p, x[i]).passes) want = 0;
    if (rule == SteRule::kApproxSign) want = want * std::max(0.0f, 2 - 2 * std::fabs(x[i]));
    if (x_edge == dtypes::bf16) want = bf16_to_float(bf16_from_float(want));
    wrong += gradient[i] != static_cast<double>(want);
  }
  return wrong;
}

TEST_CASE("the gradient of quantize equals the straight-through rule for every scheme, dtype, rule and edge dtype") {
  const std::vector<std::optional<SteRule>> rules = {std::nullopt, SteRule::kIdentity, SteRule::kClip,
                                                     SteRule::kApproxSign, SteRule::kNone};
  for (const QuantSpec& base : test::all_specs())
    for (const auto& rule : rules)
      for (const Granularity& granularity : {Granularity::tensor(), Granularity::token(), Granularity::groups(32)}) {
        QuantSpec spec = base;
        spec.ste = rule;
        spec.granularity = granularity;
        spec.alpha = spec.scheme == "binary" && granularity.kind != Granularity::kTensor;
        INFO(spec.scheme << ' ' << spec.dtype << ' ' << enum_name(ste_rule(spec)) << " per " << granularity);
        for (const DType y_edge : {dtypes::fp32, dtypes::bf16})
          for (const DType x_edge : {dtypes::fp32, dtypes::bf16})
            CHECK(wrong_gradients(spec, {3, 67}, y_edge, x_edge) == 0);
      }
}

TEST_CASE("rule tanh gives its gradient first or adds it to that of another reader, with the bits of a sum of two") {
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  spec.ste = SteRule::kTanh;
  spec.ste_t = 2.5f;
  const Shape shape{3, 67};
  const std::vector<float> x = test::numbers_for_test(shape.numel(), 1.6f, 31),
                           g = test::numbers_for_test(shape.numel(), 3, 32),
                           h = test::numbers_for_test(shape.numel(), 2, 33);
  const Tensor gt = test::tensor_of(shape, g), ht = test::tensor_of(shape, h);
  for (const DType edge : {dtypes::fp32, dtypes::bf16})
    for (const bool first : {false, true}) {
      AccumulateSink sink;
      Tape tape;
      Var inner =
          mul(tape.leaf(test::tensor_of(shape, x), &sink, dtypes::fp32), Tensor::full(shape, dtypes::fp32, -1.0));
      inner.want_grad(edge);
      const Var early = first ? add(inner, ht) : quantize(inner, spec);
      const Var late = first ? quantize(inner, spec) : add(inner, ht);
      tape.backward({early, late}, {first ? ht : gt, first ? gt : ht});
      int wrong = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const float y = math::tanh(2.5f * -x[i]);
        float want = h[i] + g[i] * (2.5f * (1.0f - y * y));
        if (edge == dtypes::bf16) want = bf16_to_float(bf16_from_float(want));
        wrong += sink.grad().as<float>()[i] != -want;
      }
      INFO(edge << ' ' << first);
      CHECK(wrong == 0);
      CHECK(gt.elements() == test::tensor_of(shape, g).elements());
      CHECK(ht.elements() == test::tensor_of(shape, h).elements());
    }
}

TEST_CASE("quantize gives the codes of quantize_dynamic, on and off a tape, for stochastic rounding too") {
  const RandomStream stream{4, Purpose::kActivation, 2, 9};
  const Tensor x = test::tensor_of({4, 70}, test::numbers_for_test(280, 2, 8));
  for (QuantSpec spec : test::all_specs()) {
    QuantizeOptions how;
    QuantizeOpOptions options;
    if (spec.dtype.kind() == DTypeKind::kInt) {
      spec.rounding = Rounding::kStochastic;
      how.sr = options.sr = &stream;
      how.first_element = options.first_element = 560;
    }
    const std::vector<double> want = quantize_dynamic(spec, x, how).values();
    CHECK(quantize(x, spec, options).value().values() == want);
    CHECK(run(x, spec, std::vector<float>(280, 1), dtypes::fp32, dtypes::fp32, options).codes.values() == want);
  }
}

TEST_CASE("the clip mask of stochastic codes is that of the very codes") {
  const RandomStream stream{4, Purpose::kActivation, 2, 9};
  QuantSpec spec;
  spec.scheme = "fixed";
  spec.dtype = dtypes::int2;
  spec.rounding = Rounding::kStochastic;
  QuantizeOpOptions options;
  options.sr = &stream;
  const int64_t n = 2000;
  const Result got = run(test::tensor_of({n}, std::vector<float>(n, 1.5f)), spec, std::vector<float>(n, 1),
                         dtypes::fp32, dtypes::fp32, options);
  int wrong = 0, kept = 0;
  for (int64_t e = 0; e < n; ++e) {
    const bool up = stream.bits16(static_cast<uint64_t>(e)) >= 32768;  // 1.5 goes to 2, which is clipped to 1
    wrong += got.gradient.as<float>()[e] != (up ? 0.0f : 1.0f);
    kept += !up;
  }
  CHECK(wrong == 0);
  CHECK(kept > 800);
  CHECK(kept < 1200);
}

TEST_CASE("given scales are used instead of those of x, for the codes and for the mask") {
  const Tensor x = test::tensor_of({2, 70}, test::numbers_for_test(140, 2, 8));
  QuantSpec spec;
  spec.dtype = dtypes::int4;
  QuantParams narrow;
  narrow.scheme = "symmetric";
  narrow.scale = std::make_shared<const Tensor>(Tensor::full({1}, dtypes::fp32, 0.125));  // codes -8 .. 7: -1 .. 0.875
  QuantizeOpOptions options;
  options.params = std::make_shared<const QuantParams>(narrow);
  const Result got = run(x, spec, std::vector<float>(140, 1), dtypes::fp32, dtypes::fp32, options);
  int wrong = 0, clipped = 0;
  const std::vector<double> codes = got.codes.elements();
  for (int64_t i = 0; i < 140; ++i) {
    const float u = std::nearbyint(x.as<float>()[i] * 8);
    wrong += codes[static_cast<size_t>(i)] != static_cast<double>(std::clamp(u, -8.0f, 7.0f));
    const bool passes = u >= -8 && u <= 7;
    wrong += got.gradient.as<float>()[i] != (passes ? 1.0f : 0.0f);
    clipped += !passes;
  }
  CHECK(wrong == 0);
  CHECK(clipped > 20);
  CHECK(got.codes.quant().get() == options.params.get());
}

TEST_CASE("alpha_grad sends the gradient through XNOR-Net's scale of each token too") {
  const Tensor x = test::tensor_of({5, 33}, test::numbers_for_test(165, 1.6f, 8));
  const std::vector<float> g = test::numbers_for_test(165, 3, 9);
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  spec.granularity = Granularity::token();
  spec.alpha = spec.alpha_grad = true;
  for (const auto& rule : {SteRule::kClip, SteRule::kApproxSign}) {
    spec.ste = rule;
    const Result got = run(x, spec, g, dtypes::fp32, dtypes::fp32);
    int wrong = 0;
    for (int64_t r = 0; r < 5; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < 33; ++c) sum += std::fabs(static_cast<double>(x.as<float>()[r * 33 + c]));
      for (int64_t c = 0; c < 33; ++c) {
        const int64_t i = r * 33 + c;
        const double a = std::fabs(static_cast<double>(x.as<float>()[i]));
        const double d = rule == SteRule::kClip ? (a <= 1 ? 1 : 0) : std::max(0.0, 2 - 2 * a);
        const double want = static_cast<double>(g[static_cast<size_t>(i)]) * (1.0 / 33 + sum / 33 * d);
        wrong += std::fabs(static_cast<double>(got.gradient.as<float>()[i]) - want) > 1e-5;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("quantize keeps one bit an element for clip, x for approx_sign, nothing for identity and off the tape") {
  const auto saved = [] { return memory_now()[MemoryKind::kSaved]; };
  const Tensor x = test::tensor_of({8, 128}, test::numbers_for_test(1024, 2, 8));
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  const int64_t before = saved();
  AccumulateSink sink;
  {
    Tape tape;
    const Var leaf = tape.leaf(x, &sink, dtypes::fp32);
    const Var clipped = quantize(leaf, spec);
    CHECK(saved() - before == 8 * 128 / 8);
    CHECK(clipped.value().kind() == MemoryKind::kActivation);
    spec.ste = SteRule::kIdentity;
    const Var passed = quantize(leaf, spec);
    CHECK(saved() - before == 8 * 128 / 8);
    {
      const NoGrad off;
      spec.ste = SteRule::kClip;
      quantize(leaf, spec);
      CHECK(saved() - before == 8 * 128 / 8);
    }
    spec.ste = SteRule::kApproxSign;
    const Var sloped = quantize(leaf, spec);
    CHECK(saved() - before == 8 * 128 / 8 + 8 * 128 * 4);
    CHECK(x.kind() == MemoryKind::kSaved);
  }
}

TEST_CASE("quantize refuses values that are not finite fp32 numbers, and names them") {
  QuantSpec spec;
  const Tensor x = test::tensor_of({2}, {1, 2});
  CHECK(contains(error_of([&] { quantize(Tensor::zeros({2}, dtypes::int8), spec); }),
                 "[quantize] x is quantized already, or integer: got [2] int8"));
  CHECK(contains(error_of([&] { quantize(Tensor::zeros({2}, dtypes::int32), spec); }), "got [2] int32, expected fp32"));
  CHECK(contains(error_of([&] { quantize(quantize_dynamic(spec, x), spec); }), "got [2] int8, expected fp32"));
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(contains(error_of([&] { quantize(Tensor::zeros({2}, dtypes::fp64), spec); }),
                   "[quantize] dtype of x: got [2] fp64, expected fp32"));
  CHECK(contains(error_of([&] { quantize(Tensor::zeros({2}, dtypes::fp16), spec); }), "got [2] fp16, expected fp32"));
  spec.scheme = "binary";
  CHECK(contains(error_of([&] { quantize(x, spec); }), "[binary] dtype int8: got kind int, expected kind sign"));
  spec.scheme = "none";
  CHECK(contains(error_of([&] { quantize(x, spec); }), "unknown scheme 'none'"));
}

TEST_CASE("a non-finite x throws, or raises the flag of the op and passes no gradient there") {
  const Tensor x = test::tensor_of({3}, {0.5f, std::numeric_limits<float>::quiet_NaN(), -0.5f});
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  CHECK(test::error_code_of([&] { quantize(x, spec); }) == static_cast<int>(ErrorCode::kNonFinite));
  const FlagWord word;
  uint32_t& flag = *word.word();
  QuantizeOpOptions options;
  options.flag = &flag;
  CHECK(run(x, spec, {1, 1, 1}, dtypes::fp32, dtypes::fp32, options).gradient.elements() ==
        std::vector<double>{1, 0, 1});
  CHECK(flag == kFlagNonFinite);
}

TEST_CASE("dequantize gives values and passes the gradient unchanged, for every scheme and dtype") {
  const Tensor x = test::tensor_of({3, 33}, test::numbers_for_test(99, 2, 8));
  for (const QuantSpec& spec : test::all_specs())
    for (const DType y_edge : {dtypes::fp32, dtypes::bf16})
      for (const DType x_edge : {dtypes::fp32, dtypes::bf16}) {
        const Tensor codes = quantize_dynamic(spec, x);
        AccumulateSink sink;
        Tape tape;
        Var y = dequantize(tape.leaf(codes, &sink, x_edge));
        CHECK(y.dtype() == dtypes::fp32);
        CHECK(y.value().elements() == codes.values());
        y.want_grad(y_edge);
        const Tensor seed = Tensor::full(x.shape(), y_edge, 0.75);
        tape.backward({y}, {seed});
        CHECK(sink.grad().dtype() == x_edge);
        CHECK(sink.grad().elements() == seed.elements());
      }
  CHECK(contains(error_of([&] { dequantize(x); }), "[dequantize] x: got [3,33] fp32, expected codes"));
}

TEST_CASE("a chain quantize, dequantize is the rule of quantize") {
  QuantSpec spec;
  spec.scheme = "fixed";
  spec.dtype = dtypes::int2;
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(test::tensor_of({4}, {-3, -2.5f, 0.2f, 1.6f}), &sink, dtypes::fp32);
  const Var y = dequantize(quantize(x, spec));
  CHECK(y.value().elements() == std::vector<double>{-2, -2, 0, 1});
  tape.backward({y}, {test::tensor_of({4}, {1, 2, 3, 4})});
  CHECK(sink.grad().elements() == std::vector<double>{0, 2, 3, 0});
}

}  // namespace
}  // namespace bitgrad
