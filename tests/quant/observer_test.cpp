// Observers against formulas written a second time: ranges over batches, resume, errors.
#include "bitgrad/quant/quantizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "quant/observer_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

namespace bitgrad {
namespace {

using test::contains;
using test::draws_with_outliers;
using test::error_code_of;
using test::error_of;
using test::observer_named;
using test::scale_of;
using test::spec_of;
using test::state_of;
using test::tensor_of;
using test::whole_state;

TEST_CASE("observers are one list of names, an unknown one names the nearest") {
  CHECK(observer_names() == std::vector<std::string_view>{"min_max", "moving_average", "percentile", "mse"});
  for (const std::string_view name : observer_names()) {
    const auto observer = observer_named(std::string(name), spec_of("affine"));
    CHECK(observer->name() == name);
    CHECK_FALSE(observer->ready());
    CHECK(contains(error_of([&] { observer->params(spec_of("affine")); }),
                   concat('[', name, "] no batch was observed yet")));
  }
  CHECK(error_of([] { observer_named("percentil", spec_of("affine")); }) ==
        "[make_observer] unknown observer 'percentil'. Did you mean 'percentile'? Known: min_max, moving_average, "
        "percentile, mse");
}

TEST_CASE("min_max gives the scales of the least and largest number of all batches") {
  const QuantSpec spec = spec_of("affine", dtypes::uint8);
  const auto observer = observer_named("min_max", spec);
  observer->observe(tensor_of({2, 2}, {1, 2, 3, 0.5f}));
  CHECK(state_of(*observer, "low").elements() == std::vector<double>{0.5});
  CHECK(state_of(*observer, "high").elements() == std::vector<double>{3});
  observer->observe(tensor_of({1, 3}, {-1, 0, 0.25f}));
  observer->observe(tensor_of({0, 3}, {}));
  CHECK(whole_state(*observer) ==
        std::map<std::string, std::vector<double>>{{"low", {-1}}, {"high", {3}}, {"batches", {2}}});
  const QuantParams p = observer->params(spec);
  CHECK(scale_of(p) == 4.0f / 255.0f);
  CHECK(p.zero->as<int32_t>()[0] == static_cast<int32_t>(0 - std::nearbyint(-1.0f / (4.0f / 255.0f))));
}

TEST_CASE("after one batch min_max gives the params of a fit, for every scheme with a range") {
  int schemes = 0;
  const std::vector<std::vector<float>> batches = {
      draws_with_outliers(6 * 4, 1),           std::vector<float>(24, 0.0f),
      std::vector<float>(24, -0.0f),           std::vector<float>(24, -3.25f),
      test::numbers_for_test(24, 0x1p120f, 2), test::numbers_for_test(24, 0x1p-140f, 3)};
  for (const QuantSpec& base : test::all_specs()) {
    if (!find_quantizer(base.scheme).from_range()) continue;
    ++schemes;
    for (const Granularity& g : {Granularity::tensor(), Granularity::channel(1)})
      for (const bool pow2 : {false, true})
        for (const auto& numbers : batches) {
          QuantSpec spec = base;
          spec.granularity = g;
          spec.pow2 = pow2;
          const Tensor x = tensor_of({6, 4}, numbers);
          const QuantParams want = find_quantizer(spec.scheme).fit(spec, x);
          for (const char* name : {"min_max", "moving_average"}) {
            const auto observer = observer_named(name, spec);
            observer->observe(x);
            const QuantParams got = observer->params(spec);
            INFO(name << ' ' << spec.scheme << ' ' << spec.dtype << ' ' << g << " first " << numbers[0]);
            CHECK(got.scheme == want.scheme);
            CHECK(got.granularity == g);
            CHECK(test::bits_of(*got.scale) == test::bits_of(*want.scale));
            REQUIRE((got.zero != nullptr) == (want.zero != nullptr));
            REQUIRE((got.offset != nullptr) == (want.offset != nullptr));
            if (got.zero) CHECK(got.zero->elements() == want.zero->elements());
            if (got.offset) CHECK(got.offset->elements() == want.offset->elements());
          }
        }
  }
  CHECK(schemes >= 40);
}

TEST_CASE("per channel each feature has its own range") {
  const QuantSpec spec = spec_of("symmetric", dtypes::int8, Granularity::channel(1));
  const auto observer = observer_named("min_max", spec, 3);
  observer->observe(tensor_of({2, 3}, {1, -2, 0, -1, 5, 0}));
  observer->observe(tensor_of({1, 3}, {0, -8, 0}));
  CHECK(state_of(*observer, "low").elements() == std::vector<double>{-1, -8, 0});
  CHECK(state_of(*observer, "high").elements() == std::vector<double>{1, 5, 0});
  const QuantParams p = observer->params(spec);
  CHECK(p.granularity == Granularity::channel(1));
  CHECK(p.scale->numel() == 3);
  CHECK(scale_of(p, 0) == 1.0f / 127.5f);
  CHECK(scale_of(p, 1) == 8.0f / 127.5f);
  CHECK(scale_of(p, 2) == 0x1p-126f);
}

TEST_CASE("moving_average rounds each operation once and the first batch sets") {
  for (const Granularity& g : {Granularity::tensor(), Granularity::channel(1)}) {
    const QuantSpec spec = spec_of("affine", dtypes::int8, g);
    const auto observer = observer_named("moving_average", spec, 5);
    const size_t blocks = g.kind == Granularity::kTensor ? 1 : 5;
    std::vector<float> low(blocks), high(blocks);
    for (int batch = 0; batch < 7; ++batch) {
      const std::vector<float> x =
          test::numbers_for_test(20, 1.0f + static_cast<float>(batch), 40 + static_cast<uint64_t>(batch));
      observer->observe(tensor_of({4, 5}, x));
      for (size_t j = 0; j < blocks; ++j) {
        float l = INFINITY, h = -INFINITY;
        for (size_t i = 0; i < x.size(); ++i)
          if (blocks == 1 || i % 5 == j) {
            l = std::min(l, x[i]);
            h = std::max(h, x[i]);
          }
        const volatile float rest = 1.0f - 0.9f, a = 0.9f * low[j], b = rest * l, c = 0.9f * high[j], d = rest * h;
        low[j] = batch == 0 ? l : a + b;
        high[j] = batch == 0 ? h : c + d;
      }
      CHECK(state_of(*observer, "low").elements() == std::vector<double>(low.begin(), low.end()));
      CHECK(state_of(*observer, "high").elements() == std::vector<double>(high.begin(), high.end()));
    }
  }
}

TEST_CASE("in calibration moving_average widens to all batches, so that their order and sizes do not count") {
  const QuantSpec spec = spec_of("affine", dtypes::int8, Granularity::tensor());
  const std::vector<float> x{1, -2, 3, 0.5f, -7, 2, 0.25f, 6};
  for (const auto& parts :
       {std::vector<std::pair<size_t, size_t>>{{0, 8}}, {{0, 2}, {2, 4}, {4, 8}}, {{4, 8}, {0, 4}}}) {
    const auto observer = observer_named("moving_average", spec, 2);
    for (const auto& [begin, end] : parts)
      observer->observe(
          tensor_of({static_cast<int64_t>(end - begin) / 2, 2},
                    {x.begin() + static_cast<std::ptrdiff_t>(begin), x.begin() + static_cast<std::ptrdiff_t>(end)}),
          /*calibrating=*/true);
    CHECK(state_of(*observer, "low").elements() == std::vector<double>{-7});
    CHECK(state_of(*observer, "high").elements() == std::vector<double>{6});
  }
}

TEST_CASE("a column view is observed as its own numbers") {
  const std::vector<float> x = draws_with_outliers(40, 8);
  std::vector<float> part;
  for (size_t i = 0; i < 40; ++i)
    if (i % 8 >= 2 && i % 8 < 5) part.push_back(x[i]);
  const Tensor view = tensor_of({5, 8}, x).column_slice(2, 5);
  for (const std::string_view name : observer_names()) {
    const auto a = observer_named(std::string(name), spec_of("affine")),
               b = observer_named(std::string(name), spec_of("affine"));
    a->observe(view);
    b->observe(tensor_of({5, 3}, part));
    CHECK(whole_state(*a) == whole_state(*b));
  }
}

TEST_CASE("state that is saved and copied into a new observer goes on with equal bits") {
  for (const std::string_view name : observer_names()) {
    const QuantSpec spec = spec_of("affine", dtypes::int4);
    const auto full = observer_named(std::string(name), spec), first = observer_named(std::string(name), spec);
    const auto batch = [](uint64_t i) { return tensor_of({50, 4}, draws_with_outliers(200, 100 + i)); };
    for (uint64_t i = 0; i < 3; ++i) {
      full->observe(batch(i));
      first->observe(batch(i));
    }
    const auto second = observer_named(std::string(name), spec);
    const std::vector<Observer::State> from = first->state(), to = second->state();
    REQUIRE(from.size() == to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      CHECK((from[i].tensor.dtype() == dtypes::fp32 || from[i].tensor.dtype() == dtypes::int64));
      CHECK(from[i].name == to[i].name);
      to[i].tensor.copy_from(from[i].tensor.clone(MemoryKind::kActivation));
    }
    CHECK(second->ready());
    for (uint64_t i = 3; i < 6; ++i) {
      full->observe(batch(i));
      second->observe(batch(i));
    }
    INFO(name);
    CHECK(whole_state(*full) == whole_state(*second));
    const QuantParams a = full->params(spec), b = second->params(spec);
    CHECK(test::bits_of(*a.scale) == test::bits_of(*b.scale));
    CHECK(a.zero->elements() == b.zero->elements());
  }
}

TEST_CASE("bad numbers and shapes are errors and change nothing") {
  for (const std::string_view name : observer_names()) {
    const auto observer = observer_named(std::string(name), spec_of("affine"));
    observer->observe(tensor_of({1, 4}, {1, 2, 3, 4}));
    const auto before = whole_state(*observer);
    INFO(name);
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const Tensor x = tensor_of({1, 4}, {9, bad, -9, 0});
      CHECK(contains(error_of([&] { observer->observe(x); }), concat('[', name, "] x [1,4] fp32 holds NaN or Inf")));
      CHECK(error_code_of([&] { observer->observe(x); }) == static_cast<int>(ErrorCode::kNonFinite));
    }
    CHECK(contains(error_of([&] { observer->observe(Tensor::zeros({2, 4}, dtypes::int8)); }), "[2,4] int8"));
    CHECK(contains(error_of([&] { observer->observe(Tensor()); }), concat('[', name, ']')));
    observer->observe(tensor_of({0, 4}, {}));
    CHECK(whole_state(*observer) == before);
  }
  const auto channels = observer_named("min_max", spec_of("affine", dtypes::int8, Granularity::channel(1)), 3);
  CHECK(error_of([&] {
          channels->observe(tensor_of({1, 4}, {1, 2, 3, 4}));
        }) == "[min_max] x [1,4] fp32 has 4 features, expected 3.");
}

TEST_CASE("what an observer does not serve is an error when it is made") {
  const auto error = [](const std::string& name, const QuantSpec& spec, int64_t features = 4) {
    return error_of([&] { observer_named(name, spec, features); });
  };
  CHECK(contains(error("mse", spec_of("affine", dtypes::int8, Granularity::channel(1))),
                 "[mse] granularity: got channel(1), expected tensor."));
  for (const Granularity& g : {Granularity::token(), Granularity::groups(32), Granularity::channel(0)})
    CHECK(contains(error("min_max", spec_of("affine", dtypes::int8, g)),
                   concat("[min_max] granularity: got ", g, ", expected tensor or channel(1).")));
  CHECK(contains(error("min_max", spec_of("affine", dtypes::int8, Granularity::channel(1)), 0),
                 "[min_max] features: got 0, expected at least 1"));
  const std::string no_range = error("percentile", spec_of("binary", dtypes::bint1));
  CHECK(contains(no_range, "[percentile] scheme binary has no scales that are computed from a range. Use one of: "));
  for (const char* name : {"affine", "symmetric", "symmetric_no_clip", "absmax", "minmax_offset"})
    CHECK(contains(no_range, name));
  CHECK(contains(error("min_max", spec_of("affine", dtypes::nf4)), "[affine]"));
  CHECK(contains(error("min_max", spec_of("afine")), "Did you mean 'affine'?"));
  const QuantSpec fine = spec_of("affine");
  for (const float bad : {-0.1f, 1.0f, NAN})
    CHECK(contains(error_of([&] { make_observer({.momentum = bad}, fine, 1); }), "[make_observer] momentum: got "));
  for (const float bad : {0.0f, -1.0f, 100.01f, NAN})
    CHECK(contains(error_of([&] { make_observer({.percentile = bad}, fine, 1); }), "[make_observer] percentile: got "));
  const auto observer = observer_named("min_max", fine);
  observer->observe(tensor_of({1}, {1}));
  CHECK(contains(error_of([&] { observer->params(spec_of("affine", dtypes::int8, Granularity::channel(1))); }),
                 "but the range was observed per tensor"));
  CHECK(scale_of(observer->params(spec_of("absmax", dtypes::int4))) == 1.0f / 7.0f);
}

TEST_CASE("a range too large for fp32 is an error of the scheme") {
  const auto observer = observer_named("min_max", spec_of("affine"));
  observer->observe(tensor_of({2}, {-3e38f, 3e38f}));
  CHECK(error_code_of([&] { observer->params(spec_of("affine")); }) == static_cast<int>(ErrorCode::kNonFinite));
}

}  // namespace
}  // namespace bitgrad
