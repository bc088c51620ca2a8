// Straight-through rules: leaf_backward and straight_through equal docs/numerics.md section 3.
#include "quant/reference.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

float expected_gradient(const QuantSpec& spec, const test::BlockParams& p, SteRule rule, float x, float g) {
  const float scaled = spec.alpha ? g * p.s : g;
  if (rule == SteRule::kNone) return 0;
  if (rule == SteRule::kClip) return test::code_of(spec, p, x).passes ? scaled : 0;
  if (rule == SteRule::kApproxSign) return scaled * std::max(0.0f, 2 - 2 * std::fabs(x));
  return scaled;
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
  int wrong = 0;
  for (int64_t e = 0; e < shape.numel(); ++e) {
    const size_t i = static_cast<size_t>(e);
    const int64_t block =
        test::block_of(spec.granularity, shape.rows(), shape.cols(), e / shape.cols(), e % shape.cols());
    wrong += g_master.as<float>()[e] != expected_gradient(spec, blocks[static_cast<size_t>(block)], rule, x[i], g[i]);
  }
  return wrong;
}

TEST_CASE("leaf_backward equals the rule for every scheme, dtype, rule and granularity") {
  const std::vector<std::optional<SteRule>> rules = {std::nullopt, SteRule::kIdentity, SteRule::kClip,
                                                     SteRule::kApproxSign, SteRule::kNone};
  for (const QuantSpec& base : test::all_specs())
    for (const auto& rule : rules)
      for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1),
                                   Granularity::groups(32), Granularity::groups(3, 0)}) {
        QuantSpec spec = base;
        spec.ste = rule;
        spec.granularity = g;
        for (const bool alpha : {false, true}) {
          if (alpha && spec.scheme != "binary") continue;
          spec.alpha = alpha;
          INFO(spec.scheme << ' ' << spec.dtype << " per " << g << " alpha " << alpha);
          CHECK(wrong_leaf_gradients(spec, {7, 67}, false) == 0);
          CHECK(wrong_leaf_gradients(spec, {7, 67}, true) == 0);
        }
      }
}

TEST_CASE("leaf_backward cuts large masters and takes empty ones") {
  QuantSpec spec;
  spec.scheme = "absmax";
  spec.granularity = Granularity::groups(5, 0);
  CHECK(wrong_leaf_gradients(spec, {1100, 1000}, true) == 0);
  CHECK(wrong_leaf_gradients(spec, {0, 5}, false) == 0);
  CHECK(wrong_leaf_gradients(spec, {5, 0}, false) == 0);
}

TEST_CASE("default rules: ternary passes all, the others clip") {
  for (const std::string_view name : quantizer_names()) {
    if (name.starts_with("test_")) continue;
    QuantSpec spec;
    spec.scheme = name;
    CHECK(ste_rule(spec) == (name == "ternary" ? SteRule::kIdentity : SteRule::kClip));
    spec.ste = SteRule::kNone;
    CHECK(ste_rule(spec) == SteRule::kNone);
  }
}

TEST_CASE("straight_through applies mask, slope, nothing or zero") {
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  const Tensor g = test::tensor_of({2, 2}, {1, 2, 3, 4}), x = test::tensor_of({2, 2}, {0.25f, -2, -0.75f, 1});
  const Tensor mask = Tensor::from_numbers({2, 2}, dtypes::bint1, std::vector<double>{1, -1, -1, 1});
  CHECK(straight_through(spec, g, mask, {}).numbers() == std::vector<double>{1, 0, 0, 4});
  CHECK(straight_through(spec, g, {}, {}).numbers() == g.numbers());
  spec.ste = SteRule::kApproxSign;
  CHECK(straight_through(spec, g, {}, x).numbers() == std::vector<double>{1.5, 0, 1.5, 0});
  spec.ste = SteRule::kNone;
  CHECK(straight_through(spec, g, {}, {}).numbers() == std::vector<double>{0, 0, 0, 0});
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
  const Tensor mask = Tensor::from_numbers({3, 2}, dtypes::bint1, std::vector<double>(6, 1));
  CHECK(test::contains(test::error_of([&] { straight_through(spec, x, mask, {}); }),
                       "the mask: got [3,2] bint1, expected bits of [2,3]"));
  spec.ste = SteRule::kApproxSign;
  CHECK(test::contains(test::error_of([&] { straight_through(spec, x, {}, {}); }),
                       "x of rule approx_sign: got undefined, expected [2,3] fp32"));
}

}  // namespace
}  // namespace bitgrad
