// Learned parts: first values, params made of them, and the sums of docs/numerics.md section 3 for lsq, lsq_plus, pact.
#include "quant/reference.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"
#include "support/spec_of.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

const std::vector<Granularity>& granularities() {
  static const std::vector<Granularity> all = {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1)};
  return all;
}

QuantSpec spec_of(const char* scheme, DType dtype, const Granularity& granularity = Granularity::tensor()) {
  QuantSpec spec = test::spec_of(scheme, dtype, granularity);
  spec.first_clip = spec.scheme == "pact" ? 1.25f : 10.0f;
  return spec;
}

// What element x adds to each learned number, in double; u itself in fp32, as it decides.
std::vector<double> terms_of(const QuantSpec& spec, float s, float m, float x, double g) {
  if (spec.scheme == "pact") return {x >= spec.first_clip ? g : 0.0};
  const float u = (x - m) / s;
  const double lo = static_cast<double>(spec.dtype.info().qmin), hi = static_cast<double>(spec.dtype.info().qmax);
  const double wide = static_cast<double>(u);
  if (wide <= lo) return {g * lo, g};
  if (wide >= hi) return {g * hi, g};
  return {g * (std::nearbyint(wide) - wide), 0.0};
}

// Largest error of a learned gradient relative to the sum of the sizes of its terms.
double worst_error(const QuantSpec& spec, const Shape& shape) {
  std::vector<float> x = test::numbers_for_test(shape.numel(), 2, 51);
  const std::vector<float> g = test::numbers_for_test(shape.numel(), 3, 52);
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  const Tensor input = test::tensor_of(shape, x);
  const QuantParams params = quantizer.params_of(spec, quantizer.first_learned(spec, input));
  const int64_t blocks = params.scale->numel();
  x[0] = params.scale->as<float>()[0];  // u = 1: an edge of ternary
  input.as<float>()[0] = x[0];
  const size_t parts = quantizer.learned(spec).size();
  std::vector<Tensor> sums;
  for (size_t i = 0; i < parts; ++i) sums.push_back(Tensor::full({blocks}, dtypes::fp32, 0.5));
  const Tensor gradient = test::tensor_of(shape, g);
  quantizer.leaf_backward(spec, params, input, gradient, gradient, sums);
  double worst = 0;
  for (size_t i = 0; i < parts; ++i) {
    std::vector<double> want(static_cast<size_t>(blocks), 0.5), size(static_cast<size_t>(blocks), 0.5);
    for (int64_t e = 0; e < shape.numel(); ++e) {
      const int64_t j =
          test::block_of(spec.granularity, shape.rows(), shape.cols(), e / shape.cols(), e % shape.cols());
      const double term =
          terms_of(spec, params.scale->as<float>()[j], params.offset ? params.offset->as<float>()[j] : 0,
                   x[static_cast<size_t>(e)], static_cast<double>(g[static_cast<size_t>(e)]))[i];
      want[static_cast<size_t>(j)] += term;
      size[static_cast<size_t>(j)] += std::fabs(term);
    }
    for (size_t j = 0; j < want.size(); ++j)
      worst = std::max(worst, std::fabs(static_cast<double>(sums[i].as<float>()[j]) - want[j]) / size[j]);
  }
  return worst;
}

TEST_CASE("gradients of steps, offsets and clips are the sums of the papers") {
  for (const QuantSpec& base : test::special_specs()) {
    if (find_quantizer(base.scheme).learned(base).empty()) continue;
    for (const Granularity& g : granularities()) {
      const QuantSpec spec = spec_of(base.scheme.c_str(), base.dtype, g);
      INFO(spec.scheme << ' ' << spec.dtype << " per " << g);
      CHECK(worst_error(spec, {3, 67}) < 1e-6);
      if (spec.dtype == dtypes::uint2 || spec.dtype == dtypes::int4) CHECK(worst_error(spec, {90, 1500}) < 2e-6);
    }
  }
}

TEST_CASE("partial sums of rows add up to those of the whole") {
  const Shape shape{6, 130};
  const Tensor x = test::tensor_of(shape, test::numbers_for_test(shape.numel(), 2, 51)),
               g = test::tensor_of(shape, test::numbers_for_test(shape.numel(), 3, 52)),
               gx = Tensor::empty(shape, dtypes::fp32);
  for (const Granularity& granularity : granularities()) {
    const QuantSpec spec = spec_of("lsq", dtypes::int3, granularity);
    const Quantizer& quantizer = find_quantizer("lsq");
    const Tensor value = quantize_dynamic(spec, x);
    const int64_t blocks = value.quant()->scale->numel();
    const Tensor full = Tensor::zeros({blocks}, dtypes::fp32), parts = Tensor::zeros({blocks}, dtypes::fp32);
    quantizer.leaf_backward(spec, *value.quant(), x, g, gx, {&full, 1});
    for (const int64_t begin : {0, 2, 4}) {
      const bool by_row = granularity == Granularity::channel(0);
      const Tensor part = by_row ? parts.row_slice(begin, begin + 2) : parts;
      quantizer.leaf_backward(spec, *value.row_slice(begin, begin + 2).quant(), x.row_slice(begin, begin + 2),
                              g.row_slice(begin, begin + 2), gx.row_slice(begin, begin + 2), {&part, 1});
    }
    for (int64_t j = 0; j < blocks; ++j)
      CHECK(std::fabs(full.as<float>()[j] - parts.as<float>()[j]) <= 1e-4f * (1 + std::fabs(full.as<float>()[j])));
  }
}

TEST_CASE("hand-computed gradients at the edges: qmin and qmax are outside, x = clip counts") {
  const Tensor g = test::tensor_of({6}, {1, 2, 4, 8, 16, 32}), gx = Tensor::empty({6}, dtypes::fp32),
               sum = Tensor::zeros({1}, dtypes::fp32);
  {
    const QuantSpec spec = spec_of("lsq", dtypes::int2);
    const Tensor step = Tensor::full({1}, dtypes::fp32, 0.5);
    const Quantizer& q = find_quantizer("lsq");
    const QuantParams params = q.params_of(spec, {&step, 1});
    // u = -3, -2, -1.5, 0.25, 1, 7: Qn, Qn, (-2 + 1.5), (0 - 0.25), Qp, Qp
    q.leaf_backward(spec, params, test::tensor_of({6}, {-1.5f, -1, -0.75f, 0.125f, 0.5f, 3.5f}), g, gx, {&sum, 1});
    CHECK(sum.as<float>()[0] == 1 * -2 + 2 * -2 + 4 * -0.5f + 8 * -0.25f + 16 * 1 + 32 * 1);
    CHECK(gx.elements() == std::vector<double>{0, 0, 4, 8, 0, 0});
    CHECK(q.learned_divisor(spec, 25) == 5.0f);
    CHECK(q.learned_divisor(spec_of("lsq", dtypes::int8), 10) == std::sqrt(1270.0f));
  }
  {
    const QuantSpec spec = spec_of("pact", dtypes::uint2);
    const Quantizer& q = find_quantizer("pact");
    const Tensor clip = Tensor::full({1}, dtypes::fp32, 3);
    const QuantParams params = q.params_of(spec, {&clip, 1});
    CHECK(params.scale->as<float>()[0] == 1.0f);
    sum.as<float>()[0] = 0;
    q.leaf_backward(spec, params, test::tensor_of({6}, {-1, 0, 2.75f, 3, 3.25f, 9}), g, gx, {&sum, 1});
    CHECK(sum.as<float>()[0] == 8 + 16 + 32);
    CHECK(gx.elements() == std::vector<double>{0, 2, 4, 8, 16, 0});  // 3.25 rounds to the largest code
    CHECK(q.learned_divisor(spec, 25) == 1.0f);
  }
}

TEST_CASE("sums of pieces of rows are added in their order") {
  // Three pieces of one row each: (1 + 1e8) - 1e8 is 0 in fp32, the other way round it leaves 1.
  const QuantSpec spec = spec_of("pact", dtypes::uint2);
  const Quantizer& q = find_quantizer("pact");
  const Tensor clip = Tensor::full({1}, dtypes::fp32, 3), sum = Tensor::zeros({1}, dtypes::fp32);
  const Tensor x = Tensor::full({3, 65536}, dtypes::fp32, 9), g = Tensor::zeros({3, 65536}, dtypes::fp32),
               gx = Tensor::empty({3, 65536}, dtypes::fp32);
  g.as<float>()[0] = 1;
  g.as<float>()[65536] = 1e8f;
  g.as<float>()[131072] = -1e8f;
  q.leaf_backward(spec, q.params_of(spec, {&clip, 1}), x, g, gx, {&sum, 1});
  CHECK(sum.as<float>()[0] == 0);
}

TEST_CASE("sums of learned parts are the same when the gradient of x is not wanted") {
  for (const char* scheme : {"lsq", "lsq_plus", "pact"}) {
    const QuantSpec spec = spec_of(scheme, dtypes::uint3);
    const Quantizer& q = find_quantizer(scheme);
    const Tensor x = test::tensor_of({5, 7}, test::numbers_for_test(35, 3, 61)),
                 g = test::tensor_of({5, 7}, test::numbers_for_test(35, 3, 62)),
                 gx = Tensor::zeros({5, 7}, dtypes::fp32);
    const QuantParams params = q.fit(spec, x);
    std::vector<Tensor> with, without;
    for (size_t i = 0; i < q.learned(spec).size(); ++i) {
      with.push_back(Tensor::zeros({1}, dtypes::fp32));
      without.push_back(Tensor::zeros({1}, dtypes::fp32));
    }
    q.leaf_backward(spec, params, x, g, gx, with);
    q.leaf_backward(spec, params, x, g, Tensor(), without);
    for (size_t i = 0; i < with.size(); ++i) CHECK(with[i].elements() == without[i].elements());
    CHECK(contains(error_of([&] { q.leaf_backward(spec, params, x, g, Tensor()); }), "the gradient of the master"));
  }
}

TEST_CASE("first values: mean for steps, the lowest number for offsets of unsigned codes, the floor for zeros") {
  const Tensor x = test::tensor_of({2, 4}, {1, -3, 2, 2, 0, 0, 0, 0});
  const auto first = [&](const char* scheme, DType dtype, size_t part) {
    const QuantSpec spec = spec_of(scheme, dtype, Granularity::channel(0));
    return find_quantizer(scheme).first_learned(spec, x)[part];
  };
  const float floor = std::ldexp(1.0f, -20);
  const Tensor step = first("lsq", dtypes::int4, 0);
  CHECK(step.shape() == Shape{2});
  CHECK(step.as<float>()[0] == 4.0f / std::sqrt(7.0f));
  CHECK(step.as<float>()[1] == floor);
  // The code of zeros is no end of the range, where no gradient passes.
  CHECK(first("lsq_plus", dtypes::uint4, 1).elements() == std::vector<double>{-3, -7 * std::ldexp(1.0, -20)});
  CHECK(first("lsq_plus", dtypes::int1, 1).elements() == std::vector<double>{-3, -0.5 * std::ldexp(1.0, -20)});
  CHECK(first("lsq_plus", dtypes::int4, 1).elements() == std::vector<double>{0, 0});
  CHECK(first("pact", dtypes::uint4, 0).elements() == std::vector<double>{1.25, 1.25});
  CHECK(find_quantizer("lsq").learned(spec_of("lsq", dtypes::int4))[0].name == "step");
  CHECK(find_quantizer("lsq").learned(spec_of("lsq", dtypes::int4))[0].floor == floor);
  const std::vector<LearnedPart> parts = find_quantizer("lsq_plus").learned(spec_of("lsq_plus", dtypes::int4));
  CHECK(parts[1].name == "offset");
  CHECK_FALSE(parts[1].floor.has_value());
  CHECK(find_quantizer("pact").learned(spec_of("pact", dtypes::uint4))[0].name == "clip");
  for (const char* scheme : {"symmetric", "binary", "dorefa_weight"}) {
    CHECK(find_quantizer(scheme).learned(spec_of(scheme, dtypes::int8)).empty());
    CHECK(contains(error_of([&] { find_quantizer(scheme).first_learned({}, x); }), "has no learned parts"));
    CHECK(contains(error_of([&] { find_quantizer(scheme).params_of({}, {}); }), "has no learned parts"));
  }
}

TEST_CASE("params keep their own copy of learned numbers, at or above the floor") {
  const QuantSpec spec = spec_of("lsq_plus", dtypes::uint4, Granularity::channel(0));
  const Quantizer& q = find_quantizer("lsq_plus");
  const std::vector<Tensor> parts = {test::tensor_of({2}, {0.5f, -1}), test::tensor_of({2}, {0.25f, -2})};
  const QuantParams params = q.params_of(spec, parts);
  parts[0].as<float>()[0] = 7;
  CHECK(params.scale->elements() == std::vector<double>{0.5, std::ldexp(1.0, -20)});
  CHECK(params.offset->elements() == std::vector<double>{0.25, -2});
  CHECK(params.scale->kind() == MemoryKind::kQuantState);
}

TEST_CASE("bad learned tensors, granularities and first clips are errors") {
  const Quantizer& q = find_quantizer("lsq");
  const QuantSpec spec = spec_of("lsq", dtypes::int4);
  const Tensor good = Tensor::full({1}, dtypes::fp32, 0.5), wide = Tensor::full({1}, dtypes::fp64, 0.5),
               nan = test::tensor_of({1}, {std::numeric_limits<float>::quiet_NaN()});
  CHECK(error_of([&] { q.params_of(spec, {}); }) == "[lsq] learned parts: got 0, expected 1.");
  CHECK(contains(error_of([&] { q.params_of(spec, {&wide, 1}); }), "learned step: got [1] fp64, expected one fp32"));
  CHECK(contains(error_of([&] {
                   q.params_of(spec, {&nan, 1});
                 }),
                 test::runs_on_device() ? "learned step: got NaN or Inf" : "learned step of block 0: got nan"));
  const std::vector<Tensor> uneven = {good, Tensor::zeros({2}, dtypes::fp32)};
  CHECK(contains(error_of([&] { find_quantizer("lsq_plus").params_of(spec_of("lsq_plus", dtypes::int4), uneven); }),
                 "learned offset: got [2] fp32"));
  const Tensor x = Tensor::zeros({2, 3}, dtypes::fp32), sum = Tensor::zeros({2}, dtypes::fp32);
  const QuantParams params = q.params_of(spec, {&good, 1});
  CHECK(contains(error_of([&] {
                   q.leaf_backward(spec, params, x, x, x, {&sum, 1});
                 }),
                 "the gradient of the learned step: got [2] fp32, expected [1] fp32"));
  CHECK(contains(error_of([&] { q.leaf_backward(spec, params, x, x, x, uneven); }),
                 "gradients of learned parts: got 2, expected 1"));
  const auto refused = [](QuantSpec bad, bool weight = false) {
    return error_of([&] { find_quantizer(bad.scheme).check(bad, weight); });
  };
  for (const Granularity& g : {Granularity::token(), Granularity::groups(32)})
    CHECK(contains(refused(spec_of("lsq", dtypes::int4, g)), "expected tensor or channel"));
  CHECK(contains(refused(spec_of("lsq", dtypes::int1), true), "Use scheme step or minmax_offset"));
  CHECK(refused(spec_of("lsq_plus", dtypes::int1), true).empty());
  CHECK(contains(refused(spec_of("lsq", dtypes::bint1)), "Use scheme binary"));
  CHECK(contains(refused(spec_of("pact", dtypes::int4)), "dtype: got int4, expected kind uint"));
  CHECK(contains(refused(spec_of("pact", dtypes::uint4), true), "Use scheme lsq or dorefa_weight"));
  QuantSpec low = spec_of("pact", dtypes::uint4);
  low.first_clip = 0;
  CHECK(contains(refused(low), "first_clip: got 0, expected at least 2^-20"));
  low = spec;
  low.first_clip = 3;
  CHECK(contains(refused(low), "first_clip is an option of scheme pact: got 3"));
  low = spec;
  low.pow2 = true;
  CHECK(contains(refused(low), "[lsq] pow2 with dtype int4: got true, expected false"));
}

}  // namespace
}  // namespace bitgrad
