// Each statistic of docs/quantization_reports.md against a plain loop in double over the printed numbers.
#include "bitgrad/run/quant_monitor.h"

#include <cmath>
#include <map>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Scheme {
  DType dtype;
  const char* name;
  Granularity granularity;
  std::optional<SteRule> ste = {};
  bool alpha = false;
  Rounding rounding = Rounding::kNearest;
};

const Scheme kSchemes[] = {
    {dtypes::int8, "symmetric", Granularity::channel(0)},
    {dtypes::int4, "symmetric", Granularity::groups(32)},
    {dtypes::int4, "symmetric", Granularity::groups(7, 0)},
    {dtypes::int5, "symmetric", Granularity::groups(48), {}, false, Rounding::kStochastic},
    {dtypes::int3, "absmax", Granularity::tensor()},
    {dtypes::int6, "affine", Granularity::channel(1)},
    {dtypes::uint4, "minmax_offset", Granularity::groups(32)},
    {dtypes::int4, "lsq", Granularity::tensor()},
    {dtypes::uint4, "lsq_plus", Granularity::channel(0)},
    {dtypes::ternary, "ternary", Granularity::tensor()},
    {dtypes::ternary, "ternary_threshold", Granularity::channel(0)},
    {dtypes::bint1, "binary", Granularity::channel(0), SteRule::kApproxSign, true},
    {dtypes::bint1, "binary", Granularity::tensor(), SteRule::kClip},
    {dtypes::bint1, "binary", Granularity::tensor(), SteRule::kNone},
    {dtypes::bint1, "standardized_binary", Granularity::channel(0)},
    {dtypes::uint3, "dorefa_weight", Granularity::tensor()},
    {dtypes::nf4, "codebook", Granularity::groups(64)},
};

// A parameter whose masters moved on after its codes were made.
std::unique_ptr<Parameter> moved(const Scheme& scheme, const Shape& shape, MasterKind master, uint64_t seed) {
  ParameterSpec spec;
  spec.quant.emplace();
  spec.quant->dtype = scheme.dtype;
  spec.quant->scheme = scheme.name;
  spec.quant->granularity = scheme.granularity;
  spec.quant->ste = scheme.ste;
  spec.quant->alpha = scheme.alpha;
  spec.quant->rounding = scheme.rounding;
  spec.master = master;
  spec.init = {"uniform", -1.0, 1.0};
  auto p = std::make_unique<Parameter>(shape, spec);
  p->initialize("layers.0.weight", seed);
  std::vector<double> numbers = p->master().elements();
  const std::vector<double> push = random_numbers(dtypes::fp32, shape.numel(), seed + 7, 0.3, 1.6);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] *= push[i];
  p->master().copy_from(Tensor::from_elements(shape, p->master().dtype(), numbers));
  return p;
}

struct Reference {
  std::map<double, int64_t> count;  // by number of the code
  double entropy = 0, sqnr_db = 0, pass = 0;
  int64_t outside = 0;
};

// Integer schemes: the code of the table in numerics.md before its clamp, in fp32 as it says.
bool saturates(const QuantSpec& spec, const QuantParams& q, int64_t i, float x) {
  const float s = q.scale ? q.scale->as<float>()[i] : 1.0f, lo = static_cast<float>(spec.dtype.info().qmin),
              hi = static_cast<float>(spec.dtype.info().qmax);
  float u = 0, low = lo;
  if (spec.scheme == "symmetric" || spec.scheme == "absmax" || spec.scheme == "affine") {
    const float inverse = 1.0f / s;
    u = std::rint(x * inverse) + static_cast<float>(q.zero ? q.zero->as<int32_t>()[i] : 0);
    if (spec.scheme == "absmax") low = -hi;
  } else if (spec.scheme == "minmax_offset") {
    u = std::rint((x - (q.offset->as<float>()[i] + s * lo)) / s) + lo;
  } else if (spec.scheme == "dorefa_weight") {
    u = std::rint(hi * (math::tanh(x) / (2.0f * q.statistic->as<float>()[i]) + 0.5f));
  } else {  // lsq, lsq_plus, ternary
    u = std::rint((x - (q.offset ? q.offset->as<float>()[i] : 0.0f)) / s);
  }
  return u < low || u > hi;
}

Reference reference(const Parameter& p) {
  Reference out;
  const QuantSpec& spec = *p.spec().quant;
  const std::vector<double> codes = p.value().elements(), values = p.value().values(), w = p.master().elements();
  double signal = 0, noise = 0;
  const Tensor x = Tensor::from_elements(p.shape(), dtypes::fp32, w);
  const Tensor passed = Tensor::full(p.shape(), dtypes::fp32, 1);
  find_quantizer(spec.scheme).leaf_backward(spec, *p.value().quant(), x, passed, passed);
  const std::vector<double> slopes = passed.elements();
  Tensor scaled = x.with_quant(p.value().quant());
  const ScaleMap map = scaled.scale_map();
  const CodeRule rule = find_quantizer(spec.scheme).code_range(spec).rule;
  for (size_t i = 0; i < w.size(); ++i) {
    ++out.count[codes[i]];
    signal += w[i] * w[i];
    noise += (w[i] - values[i]) * (w[i] - values[i]);
    out.pass += slopes[i] != 0;
    const int64_t e = static_cast<int64_t>(i), cols = p.shape().cols();
    if (rounds(rule))
      out.outside += saturates(spec, *p.value().quant(), map.index(e / cols, e % cols), static_cast<float>(w[i]));
  }
  const double n = static_cast<double>(w.size());
  for (const auto& [code, c] : out.count)
    out.entropy -= static_cast<double>(c) / n * std::log2(static_cast<double>(c) / n);
  out.sqnr_db = 10 * std::log10(signal / noise);
  out.pass /= n;
  return out;
}

void check_parameter(const Parameter& p) {
  const QuantStatistics s = quant_statistics(p);
  const Reference r = reference(p);
  const DType dtype = p.value().dtype();
  const DTypeInfo& info = dtype.info();
  const bool sign = info.kind == DTypeKind::kSign, codebook = info.kind == DTypeKind::kCodebook;
  CHECK(s.elements == p.shape().numel());
  REQUIRE(static_cast<int64_t>(s.histogram.size()) == (sign ? 2 : info.qmax - info.qmin + 1));
  for (size_t i = 0; i < s.histogram.size(); ++i) {
    const double number = sign       ? (i == 0 ? -1.0 : 1.0)
                          : codebook ? static_cast<double>(info.levels[i])
                                     : static_cast<double>(info.qmin + static_cast<int64_t>(i));
    const auto found = r.count.find(number);
    CHECK(s.histogram[i] == (found == r.count.end() ? 0 : found->second));
  }
  const double n = static_cast<double>(s.elements);
  CHECK(s.dead_codes == static_cast<int64_t>(s.histogram.size() - r.count.size()));
  CHECK(std::abs(s.entropy - r.entropy) < 1e-9);
  CHECK(std::abs(s.entropy_limit - std::log2(static_cast<double>(s.histogram.size()))) < 1e-12);
  CHECK(s.at_ends.has_value() == (s.histogram.size() > 2));
  if (s.at_ends) CHECK(*s.at_ends == static_cast<double>(s.histogram.front() + s.histogram.back()) / n);
  REQUIRE(s.sqnr_db.has_value());
  CHECK(std::abs(*s.sqnr_db - r.sqnr_db) < 1e-9 * (1 + std::abs(r.sqnr_db)));
  REQUIRE(s.pass.has_value());
  CHECK(*s.pass == r.pass);
  const CodeRule rule = find_quantizer(p.spec().quant->scheme).code_range(*p.spec().quant).rule;
  CHECK(s.saturated.has_value() == rounds(rule));
  if (s.saturated) CHECK(*s.saturated == static_cast<double>(r.outside) / n);
  if (p.value().quant()->scale) {
    REQUIRE(s.scale.has_value());
    const std::vector<double> scales = p.value().quant()->scale->elements();
    double sum = 0;
    for (const double v : scales) sum += v;
    CHECK(s.scale->least == *std::min_element(scales.begin(), scales.end()));
    CHECK(s.scale->largest == *std::max_element(scales.begin(), scales.end()));
    CHECK(std::abs(s.scale->mean - sum / static_cast<double>(scales.size())) < 1e-9 * s.scale->mean);
  }
}

Tensor codes_of(const std::vector<double>& numbers, DType dtype = dtypes::int4) {
  return Tensor::from_elements({1, static_cast<int64_t>(numbers.size())}, dtype, numbers);
}

}  // namespace

TEST_CASE("statistics of a parameter are those of a plain loop, for every kind of scheme and ragged shapes") {
  const std::vector<Shape> shapes = {{300, 331}, {21, 65}, {1, 1}, {7, 1000}, {3, 5, 70}};
  uint64_t seed = 1;
  for (const Scheme& scheme : kSchemes)
    for (const Shape& shape : shapes) {
      INFO(scheme.name << ' ' << scheme.dtype << ' ' << scheme.granularity << ' ' << shape);
      check_parameter(*moved(scheme, shape, MasterKind::kFp32, ++seed));
    }
}

TEST_CASE("a bf16 master gives the statistics of its numbers") {
  for (const Scheme& scheme : kSchemes) {
    INFO(scheme.name);
    check_parameter(*moved(scheme, {40, 33}, MasterKind::kBf16, 5));
  }
}

TEST_CASE("statistics do not depend on the number of threads") {
  const auto p = moved(kSchemes[1], {900, 333}, MasterKind::kFp32, 9);
  const int threads = num_threads();
  std::vector<QuantStatistics> all;
  for (const int n : {1, 2, 5}) {
    set_num_threads(n);
    all.push_back(quant_statistics(*p));
  }
  set_num_threads(threads);
  for (const QuantStatistics& s : all) {
    CHECK(s.histogram == all[0].histogram);
    CHECK(*s.sqnr_db == *all[0].sqnr_db);
    CHECK(*s.saturated == *all[0].saturated);
  }
}

TEST_CASE("codes without numbers have no noise and no gradient, but ends and entropy") {
  ParameterSpec spec;
  spec.quant.emplace();
  spec.quant->dtype = dtypes::int4;
  spec.master = MasterKind::kNone;
  spec.init = {"uniform", -1.0, 1.0};
  Parameter p({8, 16}, spec);
  p.initialize("w", 3);
  const QuantStatistics s = quant_statistics(p);
  CHECK_FALSE(s.sqnr_db.has_value());
  CHECK_FALSE(s.pass.has_value());
  CHECK_FALSE(s.saturated.has_value());
  CHECK(s.at_ends.has_value());
  CHECK(s.entropy > 2.5);
}

TEST_CASE("codes at the exact numbers have infinite SQNR, zeros none, and an empty tensor no fractions") {
  QuantSpec spec;
  spec.dtype = dtypes::int4;
  spec.scheme = "fixed";
  const auto params = std::make_shared<const QuantParams>(find_quantizer("fixed").fit(spec, Tensor::scalar(1)));
  const std::vector<double> whole = {1, -2, 3, 7, -8};
  const Tensor exact = Tensor::from_elements({1, 5}, dtypes::fp32, whole);
  CHECK(std::isinf(*quant_statistics(spec, quantize_tensor(spec, exact, params), exact).sqnr_db));
  const Tensor zeros = Tensor::zeros({2, 2}, dtypes::fp32);
  CHECK_FALSE(quant_statistics(spec, quantize_tensor(spec, zeros, params), zeros).sqnr_db.has_value());
  const Tensor none = Tensor::zeros({0, 4}, dtypes::fp32);
  const QuantStatistics s = quant_statistics(spec, quantize_tensor(spec, none, params), none);
  CHECK(s.elements == 0);
  CHECK_FALSE(s.pass.has_value());
  CHECK_FALSE(s.at_ends.has_value());
  CHECK(s.dead_codes == 16);
  CHECK(s.entropy == 0);
}

TEST_CASE("one code has no entropy, all codes alike the whole of it") {
  QuantSpec spec;
  spec.dtype = dtypes::int2;
  spec.scheme = "fixed";
  const auto params = std::make_shared<const QuantParams>(find_quantizer("fixed").fit(spec, Tensor::scalar(1)));
  const QuantStatistics all = quant_statistics(spec, codes_of({-2, -1, 0, 1}, dtypes::int2).with_quant(params));
  CHECK(all.entropy == 2);
  CHECK(all.entropy_limit == 2);
  CHECK(all.dead_codes == 0);
  CHECK(*all.at_ends == 0.5);
  const QuantStatistics one = quant_statistics(spec, codes_of({1, 1, 1}, dtypes::int2).with_quant(params));
  CHECK(one.entropy == 0);
  CHECK(one.dead_codes == 3);
}

TEST_CASE("count_flips counts codes, not bits, for every dtype, ragged rows and garbage behind them") {
  for (const DType dtype : code_dtypes())
    for (const Shape& shape :
         std::vector<Shape>{{1, 1}, {5, 63}, {3, 64}, {4, 65}, {9, 200}, {300, 500}, {0, 3}, {2, 0}}) {
      INFO(dtype << ' ' << shape);
      const Tensor a = random_tensor(shape, dtype, 1), b = a.clone(MemoryKind::kActivation);
      CHECK(count_flips(a, b) == 0);
      const std::vector<double> x = a.elements(), other = random_numbers(dtype, shape.numel(), 2);
      std::vector<double> y = x;
      int64_t flips = 0;
      for (size_t i = 0; i < y.size(); i += 3) {
        y[i] = other[i];
        flips += y[i] != x[i];
      }
      b.copy_from(Tensor::from_elements(shape, dtype, y));
      CHECK(count_flips(a, b) == flips);
      if (shape.numel() == 0 || shape.cols() % 64 == 0) continue;
      // Pad bits do not count.
      const int64_t used = shape.cols() * dtype.bits();
      for (int64_t r = 0; r < shape.rows(); ++r) {
        auto* row = static_cast<uint8_t*>(b.data()) + r * b.stride();
        for (int64_t bit = used; bit < b.stride() * 8; ++bit)
          row[bit / 8] = static_cast<uint8_t>(row[bit / 8] | (1 << (bit % 8)));
      }
      CHECK(count_flips(a, b) == flips);
    }
}

TEST_CASE("a watch counts flips, reversals and the codes that were reversed, along paths known by hand") {
  // Code 0: 0 1 0 1 0: three reversals. 1: 0 1 1 2 1: one, over a pause. 2: rises. 3: rests. 4: a jump there and back.
  const std::vector<std::vector<double>> steps = {
      {0, 0, -8, 5, -8}, {1, 1, -7, 5, 7}, {0, 1, -6, 5, 7}, {1, 2, -5, 5, 7}, {0, 1, -4, 5, -8}};
  CodeWatch watch(codes_of(steps[0]));
  for (size_t i = 1; i < steps.size(); ++i) watch.observe(codes_of(steps[i]));
  CHECK(watch.observations() == 4);
  CHECK(watch.flips() == 4 + 3 + 4 + 2);
  CHECK(watch.reversals() == 3 + 1 + 1);
  CHECK(watch.reversed() == 3);

  // The order of a sign or codebook dtype is that of its numbers.
  CodeWatch sign(codes_of({-1, 1}, dtypes::bint1));
  for (const double v : {1.0, -1.0, 1.0}) sign.observe(codes_of({v, 1}, dtypes::bint1));
  CHECK(sign.flips() == 3);
  CHECK(sign.reversals() == 2);
  CHECK(sign.reversed() == 1);
}

TEST_CASE("a watch equals a plain loop over random walks for every dtype") {
  for (const DType dtype : code_dtypes())
    for (const Shape& shape : std::vector<Shape>{{3, 65}, {2, 200}, {70, 2000}}) {
      INFO(dtype << ' ' << shape);
      const int64_t n = shape.numel();
      std::vector<double> last = random_numbers(dtype, n, 1);
      std::vector<int> way(last.size(), 0);
      std::vector<bool> transposed(last.size(), false);
      CodeWatch watch(Tensor::from_elements(shape, dtype, last));
      int64_t flips = 0, reversals = 0;
      const int rounds = shape.numel() > 10000 ? 3 : 9;
      for (int k = 0; k < rounds; ++k) {
        const std::vector<double> next = random_numbers(dtype, n, 100 + static_cast<uint64_t>(k));
        for (size_t i = static_cast<size_t>(k % 2); i < last.size(); i += 2) {
          if (next[i] == last[i]) continue;
          const int now = next[i] > last[i] ? 1 : -1;
          ++flips;
          reversals += way[i] == -now;
          transposed[i] = transposed[i] || way[i] == -now;
          way[i] = now;
          last[i] = next[i];
        }
        watch.observe(Tensor::from_elements(shape, dtype, last));
      }
      CHECK(watch.flips() == flips);
      CHECK(watch.reversals() == reversals);
      CHECK(watch.reversed() == std::count(transposed.begin(), transposed.end(), true));
    }
}

TEST_CASE("scale drift is the mean relative change of scales") {
  const auto params = [](std::vector<double> scales) {
    QuantParams q;
    q.scale = std::make_shared<const Tensor>(
        Tensor::from_elements({static_cast<int64_t>(scales.size())}, dtypes::fp32, scales));
    return q;
  };
  CHECK(*scale_drift(params({1, 2}), params({1, 2})) == 0);
  CHECK(*scale_drift(params({1, 2}), params({2, 1})) == 0.75);
  CHECK(*scale_drift(QuantParams{}, QuantParams{}) == 0);
  CHECK(*scale_drift(params({0, 2}), params({5, 3})) == 0.5);  // a scale of 0 has no relative change
  CHECK_FALSE(scale_drift(params({0}), params({1})).has_value());
  CHECK_FALSE(scale_drift(params({1}), params({1, 2})).has_value());
  CHECK_FALSE(scale_drift(params({1}), QuantParams{}).has_value());
}

TEST_CASE("statistics refuse what they cannot read and report what they got") {
  Parameter plain({2, 3}, {});
  plain.initialize("layers.0.bias", 1);
  CHECK(contains(error_of([&] { quant_statistics(plain); }), "[quant_statistics] parameter 'layers.0.bias'"));
  const Tensor a = Tensor::zeros({2, 3}, dtypes::int4), b = Tensor::zeros({2, 4}, dtypes::int4);
  CHECK(contains(error_of([&] { count_flips(a, b); }), "[count_flips] codes of one dtype and shape: got [2,4] int4"));
  CHECK(contains(error_of([&] { count_flips(a, plain.value()); }), "needs canonical codes, got [2,3] fp32"));
  CodeWatch watch(a);
  CHECK_FALSE(watch.matches(b));
  CHECK(contains(error_of([&] { watch.observe(b); }), "[CodeWatch]"));
  QuantSpec spec;
  spec.dtype = dtypes::int8;
  CHECK(contains(error_of([&] { quant_statistics(spec, a); }), "needs canonical int8 codes with scales"));
}
