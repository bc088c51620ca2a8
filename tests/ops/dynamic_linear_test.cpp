// quantized_linear_dynamic: forward in fp32, bf16 and int8 against formulas, gradients against the dequantized layer.
#include <algorithm>
#include <cmath>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/quant/quantizer.h"
#include "ops/linear_int8_reference.h"
#include "ops/linear_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor normal_tensor(const Shape& shape, uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 1, 0};
  std::vector<double> numbers;
  for (int64_t i = 0; i < shape.numel(); ++i) numbers.push_back(draws.normal(static_cast<uint64_t>(i)));
  return Tensor::from_elements(shape, dtypes::fp32, numbers);
}

QuantSpec spec_of(std::string_view scheme, DType dtype, const Granularity& granularity) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  spec.granularity = granularity;
  return spec;
}

DynamicLinearOptions options_of(ProductMode forward, ProductMode gx, ProductMode gw) {
  DynamicLinearOptions options;
  options.forward = forward;
  options.gx = gx;
  options.gw = gw;
  return options;
}
constexpr ProductMode kAllModes[] = {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8};

LinearRun run(const Tensor& x, const Tensor& w, const Tensor& gy, const DynamicLinearOptions& options,
              const Tensor& bias = {}) {
  AccumulateSink sx, sw, sb;
  Tape tape;
  const Var vb = bias.defined() ? tape.leaf(bias, &sb, dtypes::fp32) : Var();
  const Var y = quantized_linear_dynamic(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w, &sw, dtypes::fp32), vb, options);
  tape.backward({y}, {gy});
  return {y.value(), sx.grad(), sw.grad(), sb.grad()};
}

// x as int8 affine per token codes it: docs/numerics.md section 2.
std::vector<double> affine_per_token(const Tensor& x) {
  std::vector<double> out;
  for (int64_t r = 0; r < x.rows(); ++r) {
    const float* row = x.as<float>() + r * x.cols();
    float lo = 0, hi = 0;
    for (int64_t c = 0; c < x.cols(); ++c) {
      lo = std::min(lo, row[c]);
      hi = std::max(hi, row[c]);
    }
    const float s = std::max((hi - lo) / 255.0f, 0x1p-126f), inverse = 1.0f / s;
    const float z = std::min(std::max(-128.0f - std::rint(lo / s), -128.0f), 127.0f);
    for (int64_t c = 0; c < x.cols(); ++c) {
      const float q = std::min(std::max(std::rint(row[c] * inverse) + z, -128.0f), 127.0f);
      out.push_back((q - z) * s);
    }
  }
  return out;
}

double relative_distance(const Tensor& got, const std::vector<double>& expected) {
  const std::vector<double> g = got.elements();
  double difference = 0, size = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    difference += (g[i] - expected[i]) * (g[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

// c[m,n] = sum_k a b, by strides of a and b.
std::vector<double> multiply(int64_t m, int64_t n, int64_t k, const std::vector<double>& a, int64_t a_i, int64_t a_k,
                             const std::vector<double>& b, int64_t b_j, int64_t b_k) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < k; ++t)
        sum += a[static_cast<size_t>(i * a_i + t * a_k)] * b[static_cast<size_t>(j * b_j + t * b_k)];
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  return c;
}

}  // namespace

TEST_CASE("the forward in each mode is the layer of the rounded input, for every granularity of w") {
  const int64_t n = 9, f = 200, o = 17;
  const Tensor x = normal_tensor({n, f}, 800), bias = random_tensor({o}, dtypes::fp32, 801);
  struct Case {
    Granularity granularity;
    ZeroKind zero;
  };
  const Case cases[] = {{Granularity::tensor(), ZeroKind::kNone},   {Granularity::channel(0), ZeroKind::kInteger},
                        {Granularity::groups(32), ZeroKind::kNone}, {Granularity::groups(64), ZeroKind::kInteger},
                        {Granularity::groups(32), ZeroKind::kReal}, {Granularity::channel(0), ZeroKind::kReal}};
  for (const ProductMode mode : kAllModes) {
    std::vector<double> vx = x.elements();
    if (mode == ProductMode::kBf16)
      for (double& v : vx) v = bf16_to_float(bf16_from_float(static_cast<float>(v)));
    if (mode == ProductMode::kInt8) vx = affine_per_token(x);
    for (const Case& c : cases) {
      const Tensor w = random_codes({o, f}, dtypes::int4, 802, c.granularity, c.zero);
      const Tensor y = quantized_linear_dynamic(Var(x), Var(w), Var(bias), options_of(mode, mode, mode)).value();
      const std::vector<double> vw = w.values();
      Product p = product(
          n, o, f, [&](int64_t i, int64_t k) { return vx[static_cast<size_t>(i * f + k)]; },
          [&](int64_t j, int64_t k) { return vw[static_cast<size_t>(j * f + k)]; });
      for (int64_t i = 0; i < n * o; ++i) {
        p.value[static_cast<size_t>(i)] += bias.as<float>()[i % o];
        p.magnitude[static_cast<size_t>(i)] += std::fabs(bias.as<float>()[i % o]);
      }
      INFO(enum_name(mode) << ", w per " << c.granularity);
      // The integer epilogue with real offsets sums far larger parts than the value: hence the factor.
      CHECK(worst(y, p, f) <= (mode == ProductMode::kInt8 && c.zero == ZeroKind::kReal ? 8 : 1));
    }
  }
}

TEST_CASE("fp32-mode gradients are those of the dequantized layer to 1e-6, contracted lengths up to 4096") {
  struct Case {
    int64_t n, f, o;
  };
  const Case cases[] = {{8, 4096, 16}, {8, 16, 4096}, {4096, 16, 8}, {31, 100, 57}};
  const QuantSpec weights[] = {spec_of("symmetric", dtypes::int8, Granularity::tensor()),
                               spec_of("affine", dtypes::int8, Granularity::channel(0)),
                               spec_of("minmax_offset", dtypes::int4, Granularity::groups(32)),
                               spec_of("symmetric", dtypes::int4, Granularity::groups(64))};
  uint64_t seed = 810;
  for (const Case& c : cases)
    for (const QuantSpec& spec : weights) {
      const Tensor x = normal_tensor({c.n, c.f}, ++seed), w = quantize_dynamic(spec, normal_tensor({c.o, c.f}, ++seed)),
                   gy = normal_tensor({c.n, c.o}, ++seed);
      const LinearRun got = run(x, w, gy, options_of(ProductMode::kInt8, ProductMode::kFp32, ProductMode::kFp32));
      const std::vector<double> vx = affine_per_token(x), vw = w.values(), g = gy.elements();
      INFO(c.n << " x " << c.f << " x " << c.o << ", w " << spec.scheme << " per " << spec.granularity);
      CHECK(relative_distance(got.gx, multiply(c.n, c.f, c.o, g, c.o, 1, vw, 1, c.f)) <= 1e-6);
      CHECK(relative_distance(got.gw, multiply(c.o, c.f, c.n, g, 1, c.o, vx, 1, c.f)) <= 1e-6);
    }
}

TEST_CASE("with reduce_range x is rounded to codes of 7 bits, and the product is that of those codes") {
  const Tensor x = normal_tensor({9, 70}, 835), gy = normal_tensor({9, 12}, 836),
               w = quantize_dynamic(spec_of("symmetric", dtypes::int8, Granularity::channel(0)),
                                    normal_tensor({12, 70}, 837));
  DynamicLinearOptions options = options_of(ProductMode::kInt8, ProductMode::kFp32, ProductMode::kFp32);
  options.activation.reduce_range = true;
  const LinearRun got = run(x, w, gy, options);
  const std::vector<double> vw = w.values();
  for (int64_t r = 0; r < 9; ++r) {
    float lo = 0, hi = 0;
    for (int64_t c = 0; c < 70; ++c) {
      lo = std::min(lo, x.as<float>()[r * 70 + c]);
      hi = std::max(hi, x.as<float>()[r * 70 + c]);
    }
    const float s = (hi - lo) / 127.0f, inverse = 1.0f / s;
    const float z = std::clamp(-64.0f - std::rint(lo / s), -64.0f, 63.0f);
    for (int64_t o = 0; o < 12; ++o) {
      double sum = 0;
      for (int64_t c = 0; c < 70; ++c) {
        const float q = std::clamp(std::rint(x.as<float>()[r * 70 + c] * inverse) + z, -64.0f, 63.0f);
        sum += static_cast<double>(q - z) * static_cast<double>(s) * vw[static_cast<size_t>(o * 70 + c)];
      }
      CHECK(std::fabs(got.y.elements()[static_cast<size_t>(r * 12 + o)] - sum) <= 1e-4 + 1e-5 * std::fabs(sum));
    }
  }
}

TEST_CASE("each product of the backward has a mode of its own") {
  const Tensor x = normal_tensor({12, 80}, 840), gy = normal_tensor({12, 24}, 841),
               w = quantize_dynamic(spec_of("affine", dtypes::int8, Granularity::channel(0)),
                                    normal_tensor({24, 80}, 842));
  const RandomStream draws{3, Purpose::kGradient, 9, 1};
  std::vector<LinearRun> alike;
  for (const ProductMode mode : kAllModes) {
    DynamicLinearOptions options = options_of(ProductMode::kInt8, mode, mode);
    options.gradient_sr = &draws;
    alike.push_back(run(x, w, gy, options));
  }
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) {
      DynamicLinearOptions options = options_of(ProductMode::kInt8, kAllModes[i], kAllModes[j]);
      options.gradient_sr = &draws;
      const LinearRun got = run(x, w, gy, options);
      CHECK(bits_of(got.gx) == bits_of(alike[i].gx));
      CHECK(bits_of(got.gw) == bits_of(alike[j].gw));
      if (i != j) {
        CHECK(bits_of(got.gx) != bits_of(alike[j].gx));
        CHECK(bits_of(got.gw) != bits_of(alike[i].gw));
      }
    }
}

TEST_CASE("a frozen weight gets no gradient and needs nothing of x; gx passes the rounding of x unchanged") {
  const Tensor x = normal_tensor({6, 64}, 850), gy = normal_tensor({6, 10}, 851),
               w = quantize_dynamic(spec_of("symmetric", dtypes::int8, Granularity::tensor()),
                                    normal_tensor({10, 64}, 852));
  for (const ProductMode forward : kAllModes) {
    AccumulateSink sx;
    Tape tape;
    const Var y = quantized_linear_dynamic(tape.leaf(x, &sx, dtypes::fp32), Var(w), {},
                                           options_of(forward, ProductMode::kInt8, ProductMode::kInt8));
    tape.backward({y}, {gy});
    CHECK(sx.grad().elements() == int8_reference({gy, false, w, false, 0, nullptr}));
  }
}

TEST_CASE("the backward keeps packed codes, not floats") {
  const int64_t n = 256, f = 512, o = 256;
  const Tensor x = normal_tensor({n, f}, 860), gy = normal_tensor({n, o}, 861),
               w = quantize_dynamic(spec_of("symmetric", dtypes::int4, Granularity::channel(0)),
                                    normal_tensor({o, f}, 862));
  AccumulateSink sx, sw;
  Tape tape;
  const int64_t before = memory_now()[MemoryKind::kSaved];
  const Var y = quantized_linear_dynamic(tape.leaf(x, &sx, dtypes::fp32), tape.leaf(w, &sw, dtypes::fp32));
  const int64_t kept = memory_now()[MemoryKind::kSaved] - before;
  CHECK(kept <= n * f + o * f / 2 + 4096);
  CHECK(kept >= n * f);
}

TEST_CASE("stochastic activations use their draws, and need them") {
  DynamicLinearOptions options;
  options.activation.rounding = Rounding::kStochastic;
  const Tensor x = normal_tensor({3, 64}, 870), w = random_codes({2, 64}, dtypes::int4, 871);
  CHECK(contains(error_of([&] { quantized_linear_dynamic(Var(x), Var(w), {}, options); }), "needs a random stream"));
  const RandomStream a{1, Purpose::kActivation, 2, 3}, b{1, Purpose::kActivation, 2, 4};
  options.activation_sr = &a;
  const Tensor one = quantized_linear_dynamic(Var(x), Var(w), {}, options).value();
  CHECK(bits_of(one) == bits_of(quantized_linear_dynamic(Var(x), Var(w), {}, options).value()));
  options.activation_sr = &b;
  CHECK(bits_of(one) != bits_of(quantized_linear_dynamic(Var(x), Var(w), {}, options).value()));
}

TEST_CASE("empty batches give empty results and zero gradients") {
  const Tensor w = random_codes({4, 8}, dtypes::int8, 880, Granularity::channel(0));
  for (const ProductMode mode : kAllModes) {
    const LinearRun got =
        run(Tensor::zeros({0, 8}, dtypes::fp32), w, Tensor::zeros({0, 4}, dtypes::fp32), options_of(mode, mode, mode));
    CHECK(got.y.shape() == Shape{0, 4});
    CHECK(got.gx.shape() == Shape{0, 8});
    CHECK(got.gw.elements() == std::vector<double>(32, 0.0));
  }
}

TEST_CASE("dynamic linear errors name what is wrong") {
  const Tensor x = normal_tensor({2, 64}, 890), w = random_codes({3, 64}, dtypes::int4, 891, Granularity::groups(32));
  const auto error = [](const Var& a, const Var& b, const DynamicLinearOptions& options = {}) {
    return error_of([&] { quantized_linear_dynamic(a, b, {}, options); });
  };
  AccumulateSink sink;
  Tape tape;
  CHECK(contains(error(tape.leaf(x, &sink, dtypes::fp32), Var(w)), "gx int8 needs per-channel scales; use bf16"));
  CHECK(contains(error(Var(random_codes({2, 64}, dtypes::int8, 892)), Var(w)),
                 "[quantized_linear_dynamic] x: got Tensor [2,64] int8"));
  CHECK(contains(error(Var(normal_tensor({2, 63}, 893)), Var(w)), "x has 63 features, w expects 64"));
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(contains(error(Var(random_tensor({2, 64}, dtypes::fp64, 894)), Var(w)), "expected an fp32 matrix"));
  CHECK(error(Var(x), tape.leaf(w, &sink, dtypes::fp32),
              options_of(ProductMode::kBf16, ProductMode::kFp32, ProductMode::kInt8)) ==
        "[quantized_linear_dynamic] gw int8 multiplies the codes of x, but forward is bf16, which has none. Set "
        "forward "
        "to int8, or gw to bf16 or fp32.");
  const Tensor bad = normal_tensor({2, 64}, 895);
  bad.as<float>()[3] = NAN;
  CHECK(error_code_of([&] { quantized_linear_dynamic(Var(bad), Var(w)); }) == static_cast<int>(ErrorCode::kNonFinite));
}
