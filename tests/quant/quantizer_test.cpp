// The registry of schemes, what each refuses, and numbers that no scale fits.
#include "bitgrad/quant/quantizer.h"

#include <set>
#include <string>

#include "kernels/flag.h"
#include "kernels/quantize.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string check_error(const std::string& scheme, DType dtype, bool weight, void (*change)(QuantSpec&) = nullptr) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  if (change) change(spec);
  return error_of([&] { find_quantizer(scheme).check(spec, weight); });
}

TEST_CASE("schemes are found by name, unknown ones name the nearest") {
  for (const std::string_view name : quantizer_names()) CHECK(find_quantizer(name).name() == name);
  const std::string error = error_of([] { find_quantizer("symetric"); });
  CHECK(contains(
      error,
      "[find_quantizer] unknown scheme 'symetric'. Did you mean 'symmetric'? Known: fixed, absmax, symmetric, "));
}

// Half of absmax: a scheme of a user's program.
class TestHalf final : public Quantizer {
 public:
  std::string_view name() const override { return "test_half"; }
  void check(const QuantSpec&, bool) const override {}
  CodeRange code_range(const QuantSpec& spec) const override {
    return {CodeRule::kDivide, spec.dtype.info().qmin, spec.dtype.info().qmax};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    QuantParams params = find_quantizer("absmax").fit(spec, x);
    const Tensor half = params.scale->clone(MemoryKind::kQuantState);
    for (int64_t j = 0; j < half.numel(); ++j) half.as<float>()[j] *= 0.5f;
    params.scale = std::make_shared<const Tensor>(half);
    params.scheme = "test_half";
    return params;
  }
};

// [cpu]: the test's scheme reads the host
TEST_CASE("a program adds a scheme of its own once", "[cpu]") {
  register_quantizer(std::make_unique<TestHalf>());
  QuantSpec spec;
  spec.scheme = "test_half";
  const Tensor t = quantize_dynamic(spec, test::tensor_of({3}, {127, -10, 3}));
  CHECK(t.elements() == std::vector<double>{127, -20, 6});
  CHECK(t.values() == std::vector<double>{63.5, -10, 3});
  CHECK(quantizer_names().back() == "test_half");
  CHECK(contains(error_of([] { register_quantizer(std::make_unique<TestHalf>()); }),
                 "scheme \"test_half\" is registered already"));
  CHECK(contains(error_of([] { register_quantizer(nullptr); }), "null pointer"));
}

TEST_CASE("int1 weights by absmax, symmetric or affine are errors that name the schemes to use") {
  for (const char* scheme : {"absmax", "symmetric", "affine"}) {
    const std::string error = check_error(scheme, dtypes::int1, true);
    INFO(scheme);
    CHECK(contains(error, concat('[', scheme, "] dtype of weights: got int1")));
    for (const char* name : {"step", "minmax_offset", "binary"}) CHECK(contains(error, name));
    CHECK(check_error(scheme, dtypes::int1, false).empty());
    CHECK(check_error(scheme, dtypes::int2, true).empty());
  }
  for (const char* scheme : {"step", "minmax_offset"}) CHECK(check_error(scheme, dtypes::int1, true).empty());
}

TEST_CASE("each scheme names the dtype that it needs") {
  CHECK(check_error("binary", dtypes::int4, true) ==
        "[binary] dtype int4: got kind int, expected kind sign, such as bint1.");
  CHECK(check_error("step", dtypes::int2, true) == "[step] dtype: got int2, expected int1 = {0, 1}.");
  CHECK(check_error("step", dtypes::bint1, true) == "[step] dtype: got bint1, expected int1 = {0, 1}.");
  CHECK(contains(check_error("ternary", dtypes::int2, true), "[ternary] dtype: got int2, expected ternary"));
  CHECK(contains(check_error("codebook", dtypes::int4, true),
                 "[codebook] dtype int4: got kind int, expected kind codebook"));
  for (const char* scheme : {"absmax", "symmetric", "symmetric_no_clip", "affine", "minmax_offset"}) {
    CHECK(
        contains(check_error(scheme, dtypes::bint1, true), "got kind sign, expected int or uint. Use scheme binary."));
    CHECK(contains(check_error(scheme, dtypes::nf4, true),
                   "got kind codebook, expected int or uint. Use scheme codebook."));
  }
  CHECK(contains(check_error("fixed", dtypes::bint1, false), "Use scheme binary."));
  CHECK(contains(check_error("symmetric_no_clip", dtypes::uint4, false),
                 "got codes 0 to 15, expected codes of both signs"));
  for (const std::string_view scheme : quantizer_names()) {
    if (scheme == "test_half") continue;
    for (const DType dtype : {dtypes::fp32, dtypes::int32, dtypes::bf16})
      CHECK(contains(check_error(std::string(scheme), dtype, false),
                     concat("dtype: got ", dtype, ", expected one of at most 8 bits")));
  }
}

TEST_CASE("a dtype of a program with codes -1, 0, 1 is as good as ternary") {
  const DType mine = register_dtype({"test_three", 2, DTypeKind::kInt, -1, 1, {}});
  QuantSpec spec;
  spec.scheme = "ternary";
  spec.dtype = mine;
  CHECK(quantize_dynamic(spec, test::tensor_of({4}, {3, -3, 0.1f, -0.1f})).elements() ==
        std::vector<double>{1, -1, 0, 0});
}

TEST_CASE("bad options are errors") {
  const auto bad = [](const char* scheme, DType dtype, void (*change)(QuantSpec&)) {
    return check_error(scheme, dtype, false, change);
  };
  CHECK(contains(bad("absmax", dtypes::int8, [](QuantSpec& s) { s.eps = 0.0f; }),
                 "eps: got 0, expected at least 2^-126"));
  CHECK(contains(bad("absmax", dtypes::int8, [](QuantSpec& s) { s.eps = kNan; }), "eps: got nan"));
  CHECK(contains(bad("absmax", dtypes::int8, [](QuantSpec& s) { s.alpha = true; }),
                 "alpha is an option of scheme binary"));
  CHECK(contains(bad("absmax", dtypes::int8, [](QuantSpec& s) { s.scale = 2; }),
                 "scale and offset are constants of scheme fixed: got scale 2, offset 0"));
  CHECK(contains(bad("absmax", dtypes::int8, [](QuantSpec& s) { s.granularity = Granularity::groups(0); }),
                 "group size: got 0, expected at least 1"));
  CHECK(contains(bad("absmax", dtypes::int8, [](QuantSpec& s) { s.granularity = Granularity::channel(2); }),
                 "axis of the granularity: got 2, expected 0"));
  CHECK(contains(bad("fixed", dtypes::int8, [](QuantSpec& s) { s.scale = 0; }),
                 "scale: got 0, expected a positive number"));
  CHECK(contains(bad("fixed", dtypes::int8, [](QuantSpec& s) { s.scale = kInf; }),
                 "scale: got inf, expected a positive number"));
  CHECK(contains(bad("fixed", dtypes::int8, [](QuantSpec& s) { s.offset = kNan; }),
                 "offset: got nan, expected a finite number"));
  CHECK(contains(bad("fixed", dtypes::nf4, [](QuantSpec& s) { s.offset = 1; }),
                 "offset of a codebook: got 1, expected 0"));
}

TEST_CASE("x with non-finite values is an error") {
  QuantSpec spec;
  const Tensor x = test::tensor_of({2}, {1, 2});
  CHECK(contains(error_of([&] { quantize_dynamic(spec, Tensor::zeros({2}, dtypes::bf16)); }),
                 "dtype of x: got [2] bf16, expected fp32"));
  CHECK(contains(error_of([&] { quantize_dynamic(spec, quantize_dynamic(spec, x)); }),
                 "x [2] int8 is quantized already (scheme symmetric)"));
  CHECK(contains(error_of([&] { quantize_dynamic(spec, Tensor()); }), "x is undefined"));
  CHECK(contains(error_of([&] { quantize_tensor(spec, x, nullptr); }), "no scales for x"));
  CHECK(contains(error_of([&] { dequantize_tensor(x); }), "dtype of x: got [2] fp32, expected codes"));
  CHECK(contains(error_of([&] { find_quantizer("absmax").fit(spec, Tensor::zeros({2}, dtypes::fp64)); }),
                 "got [2] fp64"));
}

TEST_CASE("every built-in scheme is one of those that the tests go through") {
  std::set<std::string> tested{"test_half"};  // registered above
  for (const auto& specs : {test::all_specs(), test::special_specs()})
    for (const QuantSpec& spec : specs) tested.insert(spec.scheme);
  for (const std::string_view name : quantizer_names()) {
    INFO(name);
    CHECK(tested.contains(std::string(name)));
  }
}

TEST_CASE("NaN and Inf in x throw exit code 5 naming x, or raise the flag") {
  std::vector<QuantSpec> specs = test::all_specs();
  for (const QuantSpec& spec : test::special_specs()) specs.push_back(spec);
  for (const QuantSpec& base : specs)
    for (const float bad : {kNan, kInf, -kInf}) {
      std::vector<float> numbers = test::numbers_for_test(3 * 70, 1, 4);
      numbers[141] = bad;
      const Tensor x = test::tensor_of({3, 70}, numbers);
      QuantSpec spec = base;
      spec.alpha = spec.scheme == "binary" && bad > 0;
      INFO(spec.scheme << ' ' << spec.dtype << ' ' << bad);
      CHECK(error_code_of([&] { quantize_dynamic(spec, x); }) == static_cast<int>(ErrorCode::kNonFinite));
      CHECK(contains(error_of([&] { quantize_dynamic(spec, x); }), "x [3,70] fp32 holds NaN or Inf"));
      const FlagWord word;
      uint32_t& flags = *word.word();
      QuantizeOptions options;
      options.flags = &flags;
      const Tensor t = quantize_dynamic(spec, x, options);
      CHECK(flags == kFlagNonFinite);
      if (test::runs_on_device()) continue;  // the flag drops the step there; the scales are those of x
      for (const double value : t.values()) CHECK(std::isfinite(value));
    }
}

TEST_CASE("finite numbers whose range overflows fp32 are an error that names the block") {
  const float huge = 3e38f;
  const Tensor x = test::tensor_of({2, 2}, {1, 2, huge, -huge});
  for (const char* scheme : {"affine", "minmax_offset"}) {
    QuantSpec spec;
    spec.scheme = scheme;
    spec.granularity = Granularity::channel(0);
    CHECK(contains(error_of([&] { quantize_dynamic(spec, x); }),
                   test::runs_on_device()
                       ? "x [2,2] fp32 are too large: the range, scale or offset of a block is not finite"
                       : "x [2,2] fp32 are too large: the scale of block 1 is inf"));
    CHECK(error_code_of([&] { quantize_dynamic(spec, x); }) == static_cast<int>(ErrorCode::kNonFinite));
    const FlagWord word;
    uint32_t& flags = *word.word();
    QuantizeOptions options;
    options.flags = &flags;
    quantize_dynamic(spec, x, options);
    CHECK(flags == kFlagNonFinite);
  }
  QuantSpec spec;
  spec.scheme = "absmax";
  spec.pow2 = true;
  CHECK(error_of([&] { quantize_dynamic(spec, x); }).empty());  // 3e38 / 127 has a power of two above it
  spec.dtype = dtypes::ternary;
  CHECK(contains(error_of([&] { quantize_dynamic(spec, x); }),
                 test::runs_on_device() ? "are too large" : "the scale of block 0 is inf"));
}

}  // namespace
}  // namespace bitgrad
