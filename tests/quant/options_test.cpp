// Options that schemes refuse, ranges given from outside, and the statistic that travels with scales.
#include "quant/reference.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A dtype that the scheme takes.
QuantSpec legal_spec(std::string_view scheme) {
  for (const DType dtype : {dtypes::int8, dtypes::uint8, dtypes::ternary, dtypes::int1, dtypes::bint1, dtypes::nf4}) {
    QuantSpec spec;
    spec.scheme = scheme;
    spec.dtype = dtype;
    spec.granularity = Granularity::channel(0);
    if (test::accepts(spec)) return spec;
  }
  FAIL("no dtype for scheme " << scheme);
  return {};
}

bool among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST_CASE(
    "pow2, div, scale_dtype, reduce_range, tanh and alpha_grad are legal where they have a meaning, else errors") {
  for (const std::string_view name : quantizer_names()) {
    if (name.starts_with("test_")) continue;
    const auto error_with = [&](void (*change)(QuantSpec&)) {
      QuantSpec spec = legal_spec(name);
      change(spec);
      return error_of([&] { find_quantizer(spec.scheme).check(spec, false); });
    };
    INFO(name);
    const std::string pow2 = error_with([](QuantSpec& s) { s.pow2 = true; });
    if (among(name, {"pact", "lsq", "lsq_plus", "dorefa_weight", "dorefa_activation", "standardized_binary", "binary"}))
      CHECK(contains(pow2, concat('[', name, "] pow2 with dtype ")));
    else
      CHECK(pow2.empty());
    const std::string div = error_with([](QuantSpec& s) { s.div = true; });
    if (among(name, {"step", "binary", "codebook", "ternary_threshold", "standardized_binary", "dorefa_weight",
                     "dorefa_activation"}))
      CHECK(contains(div, concat('[', name, "] div with dtype ")));
    else
      CHECK(div.empty());
    const std::string half = error_with([](QuantSpec& s) { s.scale_dtype = dtypes::fp16; });
    if (among(name, {"binary", "dorefa_weight", "dorefa_activation"}))
      CHECK(contains(half, concat('[', name, "] scale_dtype with dtype ")));
    else
      CHECK(half.empty());
    CHECK(contains(error_with([](QuantSpec& s) { s.scale_dtype = dtypes::bf16; }), "got bf16, expected fp32 or fp16"));
    const std::string reduced = error_with([](QuantSpec& s) { s.reduce_range = true; });
    if (among(name, {"affine", "symmetric", "symmetric_no_clip", "absmax"}))
      CHECK(reduced.empty());
    else
      CHECK(contains(reduced, concat('[', name, "] reduce_range with dtype ")));
    const std::string tanh = error_with([](QuantSpec& s) { s.ste = SteRule::kTanh; });
    if (among(name, {"binary", "standardized_binary"}))
      CHECK(tanh.empty());
    else
      CHECK(contains(tanh, "Rule tanh follows the sign"));
    const std::string through = error_with([](QuantSpec& s) { s.alpha_grad = true; });
    CHECK(contains(through, "got true without alpha, expected scheme binary with alpha"));
  }
  QuantSpec spec = legal_spec("binary");
  spec.alpha = spec.alpha_grad = spec.pow2 = true;
  CHECK(test::accepts(spec));
  spec.ste = SteRule::kTanh;
  spec.ste_t = 0;
  CHECK(contains(error_of([&] { find_quantizer("binary").check(spec, true); }),
                 "sharpness t of rule tanh: got 0, expected a positive number"));
  spec = legal_spec("affine");
  spec.dtype = dtypes::int7;
  spec.reduce_range = true;
  CHECK(contains(error_of([&] { find_quantizer("affine").check(spec, true); }),
                 "dtype with reduce_range: got int7, expected one of 8 bits"));
  spec = legal_spec("dorefa_weight");
  spec.ste = SteRule::kClip;
  CHECK(contains(error_of([&] { find_quantizer("dorefa_weight").check(spec, true); }),
                 "got clip, expected identity or none"));
  CHECK(contains(error_of([&] { find_quantizer("dorefa_activation").check(legal_spec("dorefa_activation"), true); }),
                 "Use scheme dorefa_weight"));
}

TEST_CASE("scales of given ranges equal those of numbers with these ranges") {
  const std::vector<float> x = {-1, 2, 0.5f, 3, 4, 5, -7, -2, -1.5f, 0, 0, 0};
  const std::vector<float> low = {-1, 3, -7, 0}, high = {2, 5, -1.5f, 0};
  int tried = 0;
  for (const QuantSpec& base : test::all_specs()) {
    QuantSpec spec = base;
    spec.granularity = Granularity::channel(0);
    const Quantizer& quantizer = find_quantizer(spec.scheme);
    if (!quantizer.from_range()) {
      CHECK(
          contains(error_of([&] { quantizer.fit_range(spec, test::tensor_of({4}, low), test::tensor_of({4}, high)); }),
                   "its scales are not computed from a range"));
      continue;
    }
    ++tried;
    for (const bool pow2 : {false, true}) {
      spec.pow2 = pow2;
      const QuantParams a = quantizer.fit(spec, test::tensor_of({4, 3}, x)),
                        b = quantizer.fit_range(spec, test::tensor_of({4}, low), test::tensor_of({4}, high));
      INFO(spec.scheme << ' ' << spec.dtype);
      CHECK(a.scheme == b.scheme);
      CHECK(a.granularity == b.granularity);
      CHECK(a.scale->elements() == b.scale->elements());
      REQUIRE(!a.zero == !b.zero);
      REQUIRE(!a.offset == !b.offset);
      if (a.zero) CHECK(a.zero->elements() == b.zero->elements());
      if (a.offset) CHECK(a.offset->elements() == b.offset->elements());
    }
  }
  CHECK(tried > 60);
}

TEST_CASE("a range without elements has the smallest scale, bad ranges are errors") {
  QuantSpec spec;
  spec.scheme = "affine";
  const Quantizer& q = find_quantizer("affine");
  const auto ends = [](const std::vector<float>& x) { return test::tensor_of({static_cast<int64_t>(x.size())}, x); };
  const QuantParams params = q.fit_range(spec, ends({kInf}), ends({-kInf}));
  CHECK(params.scale->as<float>()[0] == std::ldexp(1.0f, -126));
  CHECK(params.zero->as<int32_t>()[0] == 0);
  CHECK(contains(error_of([&] { q.fit_range(spec, ends({1}), ends({1, 2})); }), "got 1 minima and 2 maxima"));
  CHECK(contains(error_of([&] { q.fit_range(spec, ends({1, 2}), ends({1, 2})); }), "ranges per tensor: got 2 minima"));
  const bool device = test::runs_on_device();  // names no block
  CHECK(contains(error_of([&] { q.fit_range(spec, ends({1}), ends({kInf})); }),
                 device ? "the range, scale or offset of a block is not finite in fp32"
                        : "the range of block 0 is 1 to inf: it has no scale"));
  CHECK(contains(error_of([&] { q.fit_range(spec, ends({-3e38f}), ends({3e38f})); }),
                 device ? "[affine] the range's ends are too large: the range, scale or offset of a block is not finite"
                        : "[affine] the range's ends are too large: the scale of block 0 is inf"));
  CHECK(contains(error_of([&] { q.fit_range(spec, Tensor(), ends({1})); }), "expected fp32 values"));
}

TEST_CASE("the statistic is counted, and follows rows, columns and transposition") {
  QuantSpec spec;
  spec.scheme = "ternary_threshold";
  spec.dtype = dtypes::ternary;
  const Tensor x = test::tensor_of({4, 128}, test::numbers_for_test(512, 1, 6));
  const auto statistic = [](const Tensor& t) { return t.quant()->statistic->elements(); };
  for (const Granularity& g : {Granularity::channel(0), Granularity::token(), Granularity::channel(1),
                               Granularity::groups(64), Granularity::groups(2, 0), Granularity::tensor()}) {
    spec.granularity = g;
    const Tensor t = quantize_dynamic(spec, x);
    const std::vector<double> all = statistic(t);
    CHECK(t.quant()->bytes() == 2 * t.quant()->scale->bytes());
    const auto at = [&](int64_t r, int64_t c) { return static_cast<size_t>(test::block_of(g, 4, 128, r, c)); };
    const Tensor rows = t.row_slice(2, 4), columns = t.column_slice(64, 128), transposed = transpose(t);
    INFO(g);
    CHECK(statistic(rows)[static_cast<size_t>(test::block_of(g, 2, 128, 1, 3))] == all[at(3, 3)]);
    CHECK(statistic(columns)[static_cast<size_t>(test::block_of(g, 4, 64, 1, 5))] == all[at(1, 69)]);
    const Granularity& transposed_g = transposed.quant()->granularity;
    CHECK(statistic(transposed)[static_cast<size_t>(test::block_of(transposed_g, 128, 4, 69, 1))] == all[at(1, 69)]);
    // Codes of the slice by its own params are the slice of the codes.
    CHECK(quantize_tensor(spec, x.row_slice(2, 4), rows.quant()).elements() == rows.elements());
  }
  spec.granularity = Granularity::channel(0);
  QuantParams bare = *quantize_dynamic(spec, x).quant();
  bare.statistic = nullptr;
  CHECK(contains(error_of([&] { quantize_tensor(spec, x, std::make_shared<const QuantParams>(bare)); }),
                 "lack the scheme's statistic"));
  bare.statistic = std::make_shared<const Tensor>(Tensor::zeros({3}, dtypes::fp32));
  CHECK(contains(error_of([&] { quantize_tensor(spec, x, std::make_shared<const QuantParams>(bare)); }),
                 "needs 4 scales, got 3"));
}

TEST_CASE("hand-computed codes of the schemes of TWN and DoReFa-Net") {
  QuantSpec spec;
  SECTION("TWN: mean abs 2, t = 1.4, above it 3 and 4") {
    spec.scheme = "ternary_threshold";
    spec.dtype = dtypes::ternary;
    const Tensor t = quantize_dynamic(spec, test::tensor_of({4}, {1, -3, 4, 0}));
    CHECK(t.elements() == std::vector<double>{0, -1, 1, 0});
    CHECK(t.quant()->scale->as<float>()[0] == 3.5f);
    CHECK(t.quant()->statistic->as<float>()[0] == 0.7f * 2.0f);
  }
  SECTION("DoReFa weights: the largest gets the last code, its negative the first") {
    spec.scheme = "dorefa_weight";
    spec.dtype = dtypes::uint2;
    const Tensor t = quantize_dynamic(spec, test::tensor_of({5}, {2, -2, 0, 0.3f, -0.3f}));
    CHECK(t.elements() == std::vector<double>{3, 0, 2, 2, 1});
    CHECK(std::fabs(t.values()[0] - 1) < 1e-6);
    CHECK(std::fabs(t.values()[1] + 1) < 1e-6);
    CHECK(quantize_dynamic(spec, Tensor::zeros({2}, dtypes::fp32)).elements() == std::vector<double>{2, 2});
  }
  SECTION("DoReFa activations: codes of 3, 6 and 8 bits are exact products") {
    spec.scheme = "dorefa_activation";
    for (const DType dtype : {dtypes::uint3, dtypes::uint6, dtypes::uint8}) {
      spec.dtype = dtype;
      const float steps = static_cast<float>(dtype.info().qmax);
      std::vector<float> x = {-1, 2, 0.5f / steps, 1.5f / steps};
      for (int k = 0; k <= 200; ++k) x.push_back((static_cast<float>(k) + 0.5f) / 201);
      const Tensor t = quantize_dynamic(spec, test::tensor_of({static_cast<int64_t>(x.size())}, x));
      const std::vector<double> q = t.elements();
      for (size_t i = 0; i < x.size(); ++i)
        CHECK(q[i] == static_cast<double>(std::nearbyint(steps * std::min(std::max(x[i], 0.0f), 1.0f))));
      CHECK(t.quant()->granularity == Granularity::tensor());
    }
  }
  SECTION("DoReFa gradients: a block of zeros has values 0") {
    spec.scheme = "dorefa_gradient";
    spec.dtype = dtypes::uint2;
    spec.granularity = Granularity::token();
    const Tensor t = quantize_dynamic(spec, test::tensor_of({2, 3}, {3, -3, 1, 0, 0, 0}));
    CHECK(t.values() == std::vector<double>{3, -3, 1, 0, 0, 0});
  }
  SECTION("XNOR-Net's K of a linear layer: mean abs of a sample") {
    spec.scheme = "binary";
    spec.dtype = dtypes::bint1;
    spec.granularity = Granularity::token();
    spec.alpha = true;
    CHECK(quantize_dynamic(spec, test::tensor_of({2, 3}, {3, -3, 0, 1, 1, -4})).values() ==
          std::vector<double>{2, -2, 2, 2, 2, -2});
  }
}

}  // namespace
}  // namespace bitgrad
