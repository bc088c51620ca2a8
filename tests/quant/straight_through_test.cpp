// Straight-through rules: leaf_backward and straight_through equal docs/numerics.md section 3.
#include "quant/reference.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

float tanh_slope(float t, float x) {
  const float y = math::tanh(t * x);
  return (t < 1 ? 1.0f : t) * (1 - y * y);
}

// n: elements of the block.
float expected_gradient(const QuantSpec& spec, const test::BlockParams& p, float n, SteRule rule, float x, float g) {
  if (spec.alpha_grad) {
    float slope = 1;
    if (rule == SteRule::kNone) slope = 0;
    if (rule == SteRule::kClip) slope = std::fabs(x) <= 1 ? 1.0f : 0.0f;
    if (rule == SteRule::kApproxSign) slope = std::max(0.0f, 2 - 2 * std::fabs(x));
    if (rule == SteRule::kTanh) slope = tanh_slope(spec.ste_t, x);
    return g * (1 / n + p.s * slope);
  }
  const float scaled = spec.alpha ? g * p.s : g;
  if (rule == SteRule::kNone) return 0;
  if (spec.scheme == "dorefa_weight") {
    const float y = math::tanh(x);
    return g * ((1 - y * y) / p.statistic);
  }
  if (rule == SteRule::kClip && (spec.scheme == "lsq" || spec.scheme == "lsq_plus")) {
    const float u = (x - p.m) / p.s;
    return u > static_cast<float>(spec.dtype.info().qmin) && u < static_cast<float>(spec.dtype.info().qmax) ? g : 0;
  }
  if (rule == SteRule::kClip) return test::code_of(spec, p, x).passes ? scaled : 0;
  if (rule == SteRule::kApproxSign) return scaled * std::max(0.0f, 2 - 2 * std::fabs(x));
  if (rule == SteRule::kTanh) return scaled * tanh_slope(spec.ste_t, x);
  return scaled;
}

// Those of leaf_backward, but standardized_binary (a test of its own).
std::vector<QuantSpec> specs() {
  std::vector<QuantSpec> out = test::all_specs();
  for (const QuantSpec& spec : test::special_specs())
    if (spec.scheme != "standardized_binary") out.push_back(spec);
  return out;
}

int wrong_leaf_gradients(const QuantSpec& spec, const Shape& shape, bool in_place) {
  const std::vector<float> x = test::numbers_for_test(shape.numel(), 1.7f, 21),
                           g = test::numbers_for_test(shape.numel(), 5, 22);
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  const Tensor master = test::tensor_of(shape, x), g_value = test::tensor_of(shape, g);
  const Tensor g_master = in_place ? g_value : Tensor::empty(shape, dtypes::fp32);
  // Scales of another tensor, smaller by a quarter, so that the clip rule bites.
  std::vector<float> narrow = x;
  for (float& v : narrow) v *= 0.75f;
  const std::vector<test::BlockParams> blocks = test::fit_blocks(spec, narrow, shape.rows(), shape.cols());
  quantizer.leaf_backward(spec, quantizer.fit(spec, test::tensor_of(shape, narrow)), master, g_value, g_master);
  const SteRule rule = spec.ste.value_or(quantizer.default_ste());
  std::vector<float> sizes(blocks.size(), 0.0f);
  for (int64_t e = 0; e < shape.numel(); ++e)
    sizes[static_cast<size_t>(
        test::block_of(spec.granularity, shape.rows(), shape.cols(), e / shape.cols(), e % shape.cols()))] += 1;
  int wrong = 0;
  for (int64_t e = 0; e < shape.numel(); ++e) {
    const size_t i = static_cast<size_t>(e);
    const int64_t block =
        test::block_of(spec.granularity, shape.rows(), shape.cols(), e / shape.cols(), e % shape.cols());
    wrong += g_master.as<float>()[e] != expected_gradient(spec, blocks[static_cast<size_t>(block)],
                                                          sizes[static_cast<size_t>(block)], rule, x[i], g[i]);
  }
  return wrong;
}

TEST_CASE("leaf_backward equals the rule for every scheme, dtype, rule and granularity") {
  const std::vector<std::optional<SteRule>> rules = {std::nullopt,         SteRule::kIdentity, SteRule::kClip,
                                                     SteRule::kApproxSign, SteRule::kTanh,     SteRule::kNone};
  int tried = 0;
  for (const QuantSpec& base : specs())
    for (const auto& rule : rules)
      for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1),
                                   Granularity::token(), Granularity::groups(32), Granularity::groups(3, 0)}) {
        QuantSpec spec = base;
        spec.ste = rule;
        spec.granularity = g;
        for (const int alpha : {0, 1, 2}) {
          spec.alpha = alpha > 0;
          spec.alpha_grad = alpha > 1;
          spec.ste_t = alpha == 1 ? 0.3f : 2.5f;
          if (!test::accepts(spec)) continue;
          ++tried;
          INFO(spec.scheme << ' ' << spec.dtype << " per " << g << " alpha " << alpha);
          CHECK(wrong_leaf_gradients(spec, {7, 67}, false) == 0);
          CHECK(wrong_leaf_gradients(spec, {7, 67}, true) == 0);
        }
      }
  CHECK(tried > 2000);
}

TEST_CASE("leaf_backward of blocks of rows, with the params of those rows, equals that of the whole") {
  std::vector<QuantSpec> all = specs();
  for (const QuantSpec& spec : test::special_specs())
    if (spec.scheme == "standardized_binary") all.push_back(spec);
  const Shape shape{8, 130};
  const Tensor x = test::tensor_of(shape, test::numbers_for_test(shape.numel(), 1.7f, 21)),
               g = test::tensor_of(shape, test::numbers_for_test(shape.numel(), 5, 22));
  for (const QuantSpec& base : all)
    for (const Granularity& granularity :
         {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1), Granularity::token(),
          Granularity::groups(32), Granularity::groups(64), Granularity::groups(3, 0)}) {
      QuantSpec spec = base;
      spec.granularity = granularity;
      spec.alpha = spec.alpha_grad = spec.scheme == "binary";
      if (!test::accepts(spec)) continue;
      const Quantizer& quantizer = find_quantizer(spec.scheme);
      const Tensor value = quantize_dynamic(spec, x), whole = Tensor::empty(shape, dtypes::fp32),
                   parts = Tensor::empty(shape, dtypes::fp32);
      quantizer.leaf_backward(spec, *value.quant(), x, g, whole);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 3}, {3, 6}, {6, 8}})
        quantizer.leaf_backward(spec, *value.row_slice(begin, end).quant(), x.row_slice(begin, end),
                                g.row_slice(begin, end), parts.row_slice(begin, end));
      INFO(spec.scheme << ' ' << spec.dtype << " per " << granularity);
      CHECK(parts.elements() == whole.elements());
    }
}

TEST_CASE("the sharpness of rule tanh grows evenly in its logarithm") {
  QuantSpec spec;
  CHECK(annealed_t(spec, 0) == 0.1f);
  CHECK(annealed_t(spec, 1) == 10.0f);
  CHECK(annealed_t(spec, -1) == 0.1f);
  CHECK(annealed_t(spec, 2) == 10.0f);
  CHECK(std::fabs(annealed_t(spec, 0.5) - 1.0f) < 1e-6f);
  CHECK(std::fabs(annealed_t(spec, 0.25) - 0.31622777f) < 1e-6f);
  spec.ste_t_first = spec.ste_t_last = 3;
  CHECK(annealed_t(spec, 0.3) == 3.0f);
}

TEST_CASE("leaf_backward cuts large masters and accepts empty ones") {
  QuantSpec spec;
  spec.scheme = "absmax";
  spec.granularity = Granularity::groups(5, 0);
  CHECK(wrong_leaf_gradients(spec, {1100, 1000}, true) == 0);
  CHECK(wrong_leaf_gradients(spec, {0, 5}, false) == 0);
  CHECK(wrong_leaf_gradients(spec, {5, 0}, false) == 0);
}

TEST_CASE("default rules: the ternary schemes and dorefa_weight pass all, standardized_binary is tanh, others clip") {
  for (const std::string_view name : quantizer_names()) {
    if (name.starts_with("test_")) continue;
    QuantSpec spec;
    spec.scheme = name;
    const bool identity = name == "ternary" || name == "ternary_threshold" || name == "dorefa_weight";
    const SteRule other = name == "standardized_binary" ? SteRule::kTanh : SteRule::kClip;
    CHECK(ste_rule(spec) == (identity ? SteRule::kIdentity : other));
    spec.ste = SteRule::kNone;
    CHECK(ste_rule(spec) == SteRule::kNone);
  }
}

TEST_CASE("straight_through applies mask, slope, nothing or zero") {
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  const Tensor g = test::tensor_of({2, 2}, {1, 2, 3, 4}), x = test::tensor_of({2, 2}, {0.25f, -2, -0.75f, 1});
  const Tensor mask = Tensor::from_elements({2, 2}, dtypes::bint1, std::vector<double>{1, -1, -1, 1});
  CHECK(straight_through(spec, g, mask, {}).elements() == std::vector<double>{1, 0, 0, 4});
  CHECK(straight_through(spec, g, {}, {}).elements() == g.elements());
  spec.ste = SteRule::kApproxSign;
  CHECK(straight_through(spec, g, {}, x).elements() == std::vector<double>{1.5, 0, 1.5, 0});
  spec.ste = SteRule::kTanh;
  spec.ste_t = 2;
  const Tensor through = straight_through(spec, g, {}, x);
  for (int64_t i = 0; i < 4; ++i) CHECK(through.as<float>()[i] == g.as<float>()[i] * tanh_slope(2, x.as<float>()[i]));
  spec.ste = SteRule::kNone;
  CHECK(straight_through(spec, g, {}, {}).elements() == std::vector<double>{0, 0, 0, 0});
  spec.ste = SteRule::kIdentity;
  CHECK(straight_through(spec, g, mask, x).data() == g.data());
}

TEST_CASE("gradients of a wrong shape or dtype are errors that name both sides") {
  QuantSpec spec;
  const Quantizer& q = find_quantizer("symmetric");
  const Tensor x = Tensor::zeros({2, 3}, dtypes::fp32), other = Tensor::zeros({3, 2}, dtypes::fp32),
               narrow = Tensor::zeros({2, 3}, dtypes::bf16);
  const QuantParams params = q.fit(spec, x);
  CHECK(test::error_of([&] { q.leaf_backward(spec, params, x, other, x); }) ==
        "[symmetric] the gradient of the value: got [3,2] fp32, expected [2,3] fp32, dense.");
  CHECK(test::contains(test::error_of([&] { q.leaf_backward(spec, params, x, x, narrow); }),
                       "the gradient of the master: got [2,3] bf16, expected [2,3] fp32"));
  CHECK(test::contains(test::error_of([&] { q.leaf_backward(spec, params, narrow, x, x); }),
                       "the master: got [2,3] bf16"));
  const Tensor mask = Tensor::from_elements({3, 2}, dtypes::bint1, std::vector<double>(6, 1));
  CHECK(test::contains(test::error_of([&] { straight_through(spec, x, mask, {}); }),
                       "the mask: got [3,2] bint1, expected bits of [2,3]"));
  spec.ste = SteRule::kApproxSign;
  CHECK(test::contains(test::error_of([&] { straight_through(spec, x, {}, {}); }),
                       "x of rule approx_sign: got undefined, expected [2,3] fp32"));
  spec.ste = SteRule::kTanh;
  CHECK(test::contains(test::error_of([&] { straight_through(spec, x, {}, {}); }), "x of rule tanh: got undefined"));
}

}  // namespace
}  // namespace bitgrad
