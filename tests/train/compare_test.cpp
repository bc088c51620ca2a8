// Two models side by side.
#include "bitgrad/tools/compare.h"

#include <cmath>

#include "support/catch.h"
#include "support/expect_error.h"
#include "train/phase_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const Tensor kBatch = random_tensor({9, kFeatures}, dtypes::fp32, 11);

const ParameterDifference& parameter(const ModelDifference& d, const std::string& path) {
  for (const ParameterDifference& p : d.parameters)
    if (p.path == path) return p;
  FAIL("no parameter " << path);
  throw 0;
}

}  // namespace

TEST_CASE("a model equals itself and its copy bit for bit, and each parameter and module is reported once") {
  const auto a = small_learner(), b = small_learner();
  train_some(*a, 3);
  train_some(*b, 3);
  for (const ModelDifference& d : {compare_models(*a, *a, kBatch), compare_models(*a, *b, kBatch)}) {
    CHECK(d.equal_bits);
    CHECK(d.parameters.size() == a->model().parameters().size());
    REQUIRE(d.modules.size() == 5);
    CHECK(d.modules[0].path == "layers.0");
    CHECK(d.modules[4].path == "layers.4");
    CHECK(d.output.values->max_abs_difference == 0);
    CHECK(d.output.a == "[9,3] fp32");
    CHECK(d.only_a.empty());
    CHECK(d.only_b.empty());
    CHECK(parameter(d, "layers.0.weight").a == "int4 affine channel(0)");
    CHECK(*parameter(d, "layers.0.weight").codes_differ == 0);
    CHECK_FALSE(parameter(d, "layers.0.bias").codes_differ.has_value());
  }
}

TEST_CASE("differences of weights and outputs are those of a plain loop") {
  const auto a = small_learner(), b = small_learner();
  train_some(*a, 2);
  train_some(*b, 9);
  const ModelDifference d = compare_models(*a, *b, kBatch);
  CHECK_FALSE(d.equal_bits);
  const std::vector<Parameter*> of_a = a->model().parameters(), of_b = b->model().parameters();
  const auto check = [](const std::optional<Difference>& found, const std::vector<double>& x,
                        const std::vector<double>& y) {
    REQUIRE(found.has_value());
    double largest = 0, sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i] - y[i]));
      sum += (x[i] - y[i]) * (x[i] - y[i]);
    }
    CHECK(found->max_abs_difference == largest);
    CHECK(std::abs(found->rms_difference - std::sqrt(sum / static_cast<double>(x.size()))) < 1e-12);
    CHECK(found->equal_bits == (x == y));
  };
  for (size_t i = 0; i < of_a.size(); ++i) {
    const ParameterDifference& p = parameter(d, of_a[i]->path());
    check(p.values, of_a[i]->value().values(), of_b[i]->value().values());
    if (!of_a[i]->low_bit()) continue;
    int64_t flips = 0;
    const std::vector<double> x = of_a[i]->value().elements(), y = of_b[i]->value().elements();
    for (size_t k = 0; k < x.size(); ++k) flips += x[k] != y[k];
    CHECK(*p.codes_differ == flips);
    CHECK(p.elements == of_a[i]->shape().numel());
    CHECK(p.same_form);
  }
  check(d.output.values, a->predict(kBatch).values(), b->predict(kBatch).values());
}

TEST_CASE("other dtypes, other shapes and layers of one model alone are reported") {
  const auto a = small_learner(), b = small_learner(dtypes::int4, "symmetric");
  const ModelDifference d = compare_models(*a, *b, kBatch);
  const ParameterDifference& last = parameter(d, "layers.4.weight");
  CHECK(last.a == "bint1 binary tensor");
  CHECK(last.b == "int4 symmetric tensor");
  CHECK_FALSE(last.same_form);
  CHECK_FALSE(last.codes_differ.has_value());
  CHECK(last.values.has_value());
  CHECK_FALSE(d.equal_bits);

  OptimizerSpec sgd;
  sgd.name = "sgd";
  Learner other(
      make_sequential({linear_spec(6, dtypes::int4, "symmetric"), linear_spec(3, dtypes::fp32, "")}, kFeatures),
      find_loss("softmax_cross_entropy"), sgd, RequantPolicy{1, 1}, [](int64_t) { return 0.1f; }, 1);
  const ModelDifference e = compare_models(*a, other, kBatch);
  CHECK_FALSE(parameter(e, "layers.0.weight").values.has_value());
  CHECK_FALSE(e.modules[0].values.has_value());
  CHECK(e.modules[0].b == "[9,6] fp32");
  CHECK(std::count(e.only_a.begin(), e.only_a.end(), "layers.4.weight") == 1);
  CHECK(std::count(e.only_a.begin(), e.only_a.end(), "layers.2") == 1);
  CHECK(e.only_b.size() == 2);  // weight and bias of layers.1, which is a norm in a
  CHECK_FALSE(e.equal_bits);
}

TEST_CASE("learned steps of weights are not compared: a converted model has none") {
  const auto a = small_learner(dtypes::int4, "lsq"), b = small_learner(dtypes::int4, "lsq");
  for (Learner* learner : {a.get(), b.get()}) train_some(*learner, 4);
  b->convert();
  const ModelDifference d = compare_models(*a, *b, kBatch);
  for (const ParameterDifference& p : d.parameters) CHECK_FALSE(contains(p.path, "step"));
  CHECK(d.only_a.empty());
  CHECK(d.equal_bits);
}

TEST_CASE("inputs of layers that are off are not compared: a model converted then has none") {
  PhaseRun run;
  const LayerQuant lsq = with_input(held(dtypes::int4, "lsq"), dtypes::int8, "lsq");
  run.phases = {{0, all_layers(lsq), kOn}, {2, std::nullopt, kOff}, {8, std::nullopt, kOn}};
  const auto a = phase_learner(run), b = phase_learner(run), on = phase_learner(run);
  for (Learner* learner : {a.get(), b.get()}) train_some(*learner, 4);
  train_some(*on, 2);
  REQUIRE(a->phase() == 1);
  b->convert();
  const ModelDifference d = compare_models(*a, *b, kBatch), reversed = compare_models(*b, *a, kBatch);
  CHECK(d.only_a.empty());
  CHECK(reversed.only_b.empty());
  CHECK(d.modules.size() == 7);
  CHECK(d.equal_bits);
  CHECK(reversed.equal_bits);
  // Those that are on are told.
  REQUIRE(on->phase() == 0);
  const ModelDifference e = compare_models(*on, *b, kBatch);
  CHECK(std::count(e.only_a.begin(), e.only_a.end(), "layers.0.input") == 1);
  CHECK(std::count(e.only_a.begin(), e.only_a.end(), "layers.0.input.step") == 1);
  CHECK_FALSE(e.equal_bits);
}

TEST_CASE("a comparison leaves the hook as it was") {
  const auto a = small_learner();
  int64_t told = 0;
  a->state().on_forward = [&](const std::string&, const Tensor&, const Tensor&) { ++told; };
  compare_models(*a, *a, kBatch);
  CHECK(told == 0);
  a->predict(kBatch);
  CHECK(told == 5);
}
