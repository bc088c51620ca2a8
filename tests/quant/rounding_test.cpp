// Stochastic rounding: the exact rule of docs/numerics.md section 7, its mean, and the names of the rules.
#include "bitgrad/quant/scheme.h"

#include "bitgrad/dtype/codec.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

TEST_CASE("stochastic codes follow the draw of their element, for every integer scheme and dtype") {
  const RandomStream stream{11, Purpose::kRequantize, 5, 3};
  const Shape shape{5, 70};
  const std::vector<float> x = test::numbers_for_test(shape.numel(), 2, 9);
  int tried = 0;
  std::vector<QuantSpec> specs = test::all_specs();
  for (QuantSpec& spec : specs) spec.granularity = Granularity::groups(32);
  for (QuantSpec spec : test::special_specs())
    for (const Granularity& g : {Granularity::tensor(), Granularity::channel(1), Granularity::groups(32)}) {
      spec.granularity = g;
      specs.push_back(spec);
    }
  for (QuantSpec spec : specs) {
    spec.rounding = Rounding::kStochastic;
    if (!test::accepts(spec)) continue;
    ++tried;
    Tensor mask;
    QuantizeOptions options;
    options.sr = &stream;
    options.first_element = 12345;
    options.mask = &mask;
    const Tensor t = quantize_dynamic(spec, test::tensor_of(shape, x), options);
    const std::vector<test::BlockParams> blocks = test::fit_blocks(spec, x, shape.rows(), shape.cols());
    const std::vector<double> codes = t.elements();
    int wrong = 0;
    for (int64_t e = 0; e < shape.numel(); ++e) {
      const int64_t block = test::block_of(spec.granularity, shape.rows(), shape.cols(), e / 70, e % 70);
      const uint16_t draw = stream.bits16(static_cast<uint64_t>(12345 + e));
      const test::CodePass want =
          test::code_of(spec, blocks[static_cast<size_t>(block)], x[static_cast<size_t>(e)], &draw);
      wrong += codes[static_cast<size_t>(e)] != want.number;
      if (mask.defined())
        wrong +=
            (load_raw(static_cast<const char*>(mask.data()) + e / 70 * mask.stride(), e % 70, 1) == 1) != want.passes;
    }
    INFO(spec.scheme << ' ' << spec.dtype);
    CHECK(wrong == 0);
  }
  CHECK(tried > 180);
}

TEST_CASE("the mean of stochastic codes is the number, and codes at the ends stay inside") {
  const RandomStream stream{1, Purpose::kRequantize, 5, 3};
  QuantSpec spec;
  spec.scheme = "fixed";
  spec.rounding = Rounding::kStochastic;
  QuantizeOptions options;
  options.sr = &stream;
  const int64_t n = 40000;
  for (const DType dtype : {dtypes::int2, dtypes::int8, dtypes::ternary})
    for (const float x : {0.3f, -0.3f, 0.5f, -0.9f, 0.0f, 0.999f}) {
      spec.dtype = dtype;
      const std::vector<double> codes =
          quantize_dynamic(spec, test::tensor_of({4, n / 4}, std::vector<float>(static_cast<size_t>(n), x)), options)
              .elements();
      double sum = 0;
      int far = 0;
      for (const double code : codes) {
        sum += code;
        far += std::fabs(code - static_cast<double>(x)) >= 1.0;
      }
      CHECK(far == 0);
      // Five deviations of the mean of n draws, and the bias of 2^-16.
      const double fraction = static_cast<double>(x) - std::floor(static_cast<double>(x));
      const double bound = 5 * std::sqrt(fraction * (1 - fraction) / static_cast<double>(n)) + 1.0 / 65536;
      CHECK(std::fabs(sum / static_cast<double>(n) - static_cast<double>(x)) <= bound);
    }
  spec.dtype = dtypes::int2;
  for (const double code :
       quantize_dynamic(spec, test::tensor_of({500}, std::vector<float>(500, 1.7f)), options).elements())
    CHECK(code == 1);
  for (const double code :
       quantize_dynamic(spec, test::tensor_of({500}, std::vector<float>(500, -1e30f)), options).elements())
    CHECK(code == -2);
}

TEST_CASE("gradients by dorefa_gradient have the right mean, and are within a step") {
  const RandomStream stream{3, Purpose::kGradient, 5, 3};
  QuantSpec spec;
  spec.scheme = "dorefa_gradient";
  spec.rounding = Rounding::kStochastic;
  spec.granularity = Granularity::token();
  QuantizeOptions options;
  options.sr = &stream;
  const int64_t n = 20000;
  for (const DType dtype : {dtypes::int1, dtypes::uint2, dtypes::uint4, dtypes::uint8}) {
    spec.dtype = dtype;
    std::vector<float> x(static_cast<size_t>(2 * n), 0.0f);
    for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = i == 0 ? -3.0f : 0.4f;
    const std::vector<double> values = quantize_dynamic(spec, test::tensor_of({2, n}, x), options).values();
    const double s = 6.0 / static_cast<double>(dtype.info().qmax);
    double sum = 0;
    int far = 0;
    for (int64_t i = 1; i < n; ++i) {
      sum += values[static_cast<size_t>(i)];
      far += std::fabs(values[static_cast<size_t>(i)] - 0.4) > s;
      far += values[static_cast<size_t>(n + i)] != 0.0;  // the block of zeros
    }
    INFO(dtype);
    CHECK(far == 0);
    // Five deviations of a mean of draws that differ by s, and the bias of 2^-16 steps.
    CHECK(std::fabs(sum / static_cast<double>(n - 1) - 0.4) <= s * (2.5 / std::sqrt(static_cast<double>(n)) + 0x1p-16));
  }
}

TEST_CASE("stochastic rounding without a stream, or of signs, is an error") {
  const Tensor x = test::tensor_of({2}, {1, -2});
  QuantSpec spec;
  spec.rounding = Rounding::kStochastic;
  CHECK(test::contains(test::error_of([&] { quantize_dynamic(spec, x); }),
                       "stochastic rounding to int8 needs a random stream"));
  spec.dtype = dtypes::bint1;
  spec.scheme = "binary";
  CHECK(test::contains(test::error_of([&] { quantize_dynamic(spec, x); }),
                       "[binary] rounding of dtype bint1: got stochastic, expected nearest"));
  spec.dtype = dtypes::int1;
  spec.scheme = "step";
  CHECK(test::contains(test::error_of([&] { quantize_dynamic(spec, x); }),
                       "[step] rounding of dtype int1: got stochastic, expected nearest"));
  spec.dtype = dtypes::nf4;
  spec.scheme = "codebook";
  CHECK(test::contains(test::error_of([&] { quantize_dynamic(spec, x); }),
                       "[codebook] rounding of dtype nf4: got stochastic, expected nearest"));
}

TEST_CASE("names of rounding and of straight-through rules go both ways") {
  for (const std::string& name : enum_names<Rounding>())
    CHECK(enum_name(parse_enum<Rounding>(name, "here", "rounding")) == name);
  for (const std::string& name : enum_names<SteRule>()) CHECK(enum_name(find_enum<SteRule>(name).value()) == name);
  CHECK(find_enum<SteRule>("Clip") == std::nullopt);
  CHECK(enum_names<Rounding>() == std::vector<std::string>{"nearest", "stochastic"});
  CHECK(enum_names<SteRule>() == std::vector<std::string>{"identity", "clip", "approx_sign", "tanh", "none"});
  CHECK(test::error_of([] { parse_enum<Rounding>("up", "here", "rounding"); }) ==
        "[here] unknown rounding: got \"up\", expected one of nearest, stochastic.");
  CHECK(test::error_of([] { parse_enum<SteRule>("Clip", "here", "straight-through rule"); }) ==
        "[here] unknown straight-through rule: got \"Clip\", expected one of identity, clip, approx_sign, tanh, "
        "none.");
}

}  // namespace
}  // namespace bitgrad
