// What an optimizer keeps, how it is resumed, and what it refuses.
#include <algorithm>
#include <cmath>
#include <map>

#include "bitgrad/optim/optimizer.h"
#include "optim/optim_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("state is named for checkpoints, and a resumed optimizer goes on bit for bit") {
  const auto gradient = [](int step) { return random_tensor({3, 3}, dtypes::fp32, 20 + static_cast<uint64_t>(step)); };
  auto a = float_parameter("w", {3, 3}), b = float_parameter("w", {3, 3});
  auto first = make_optimizer(named("adamw"));
  first->attach({a.get()});
  for (int step = 0; step < 3; ++step) {
    accumulate(*a, gradient(step));
    first->step(0.1f, 1);
  }
  const auto state = first->state();
  REQUIRE(state.size() == 2);
  CHECK(state[0].name == "w.adam.m");
  CHECK(state[1].name == "w.adam.v");
  CHECK(state[0].tensor.kind() == MemoryKind::kOptimizer);
  auto second = make_optimizer(named("adamw"));
  second->attach({b.get()});
  b->master().copy_from(a->master());
  for (size_t i = 0; i < 2; ++i) second->state()[i].tensor.copy_from(state[i].tensor);
  second->set_steps(3);
  accumulate(*a, gradient(3));
  accumulate(*b, gradient(3));
  first->step(0.1f, 1);
  second->step(0.1f, 1);
  CHECK(floats(a->master()) == floats(b->master()));
  OptimizerSpec momentum = named("sgd");
  momentum.momentum = 0.5f;
  auto sgd = make_optimizer(momentum);
  sgd->attach({a.get()});
  CHECK(sgd->state()[0].name == "w.sgd.momentum");
  CHECK(make_optimizer(named("sgd"))->state().empty());
}

TEST_CASE("moments with scales are resumed bit for bit, and named and shaped as files hold them") {
  for (const MomentKind kind : {MomentKind::kInt8, MomentKind::kInt4}) {
    const bool pairs = kind == MomentKind::kInt4;
    OptimizerSpec spec = named("adam");
    spec.moments = kind;
    const Shape shape{7, 93};  // 651 numbers: three blocks, an odd count
    auto a = float_parameter("w", shape), b = float_parameter("w", shape);
    auto first = make_optimizer(spec), second = make_optimizer(spec);
    first->attach({a.get()});
    second->attach({b.get()});
    const auto step = [&](Optimizer& optimizer, Parameter& p, uint64_t seed) {
      accumulate(p, random_tensor(shape, dtypes::fp32, seed));
      optimizer.step(0.1f, 1);
    };
    for (uint64_t seed = 0; seed < 3; ++seed) step(*first, *a, seed);
    const auto state = first->state();
    std::vector<std::string> listed;
    listed.reserve(state.size());
    for (const auto& s : state) listed.push_back(concat(s.name, ' ', s.tensor.shape(), ' ', s.tensor.dtype()));
    const std::string m = pairs ? "[326] uint8" : "[651] int8", v = pairs ? "[326] uint8" : "[651] uint8";
    CHECK(listed == std::vector<std::string>{"w.adam.m " + m, "w.adam.m.unit [3] fp32", "w.adam.v " + v,
                                             "w.adam.v.unit [3] fp32"});
    b->master().copy_from(a->master());
    for (size_t i = 0; i < state.size(); ++i) second->state()[i].tensor.copy_from(state[i].tensor);
    second->set_steps(3);
    for (uint64_t seed = 3; seed < 5; ++seed) {
      step(*first, *a, seed);
      step(*second, *b, seed);
    }
    CHECK(floats(a->master()) == floats(b->master()));
    for (size_t i = 0; i < state.size(); ++i)
      CHECK(first->state()[i].tensor.elements() == second->state()[i].tensor.elements());
  }
}

TEST_CASE("attached anew, what stays keeps its moments, what is new begins with zeros at the step of the run") {
  const auto gradient = [](int step) { return random_tensor({3, 3}, dtypes::fp32, 20 + static_cast<uint64_t>(step)); };
  const auto numbers = [](const Optimizer& optimizer) {
    std::map<std::string, std::vector<double>> all;
    for (const auto& s : optimizer.state()) all[s.name] = s.tensor.elements();
    return all;
  };
  for (const MomentKind kind : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4}) {
    OptimizerSpec spec = named("adam");
    spec.moments = kind;
    auto uninterrupted = float_parameter("w", {3, 3}), old = float_parameter("w", {3, 3}),
         stays = float_parameter("w", {3, 3});
    auto other = float_parameter("v", {3, 3}), wide = float_parameter("w", {3, 4});
    auto first = make_optimizer(spec), second = make_optimizer(spec);
    first->attach({uninterrupted.get()});
    second->attach({old.get()});
    for (int step = 0; step < 3; ++step) {
      accumulate(*uninterrupted, gradient(step));
      accumulate(*old, gradient(step));
      first->step(0.1f, 1);
      second->step(0.1f, 1);
    }
    stays->master().copy_from(old->master());
    old.reset();  // a model in another form has other parameters of the same paths
    second->attach({stays.get(), other.get()});
    CHECK(second->steps() == 3);
    auto state = numbers(*second);
    CHECK(state.at("w.adam.m") == numbers(*first).at("w.adam.m"));
    CHECK(state.at("v.adam.m") == std::vector<double>(kind == MomentKind::kInt4 ? 5 : 9, 0.0));
    accumulate(*uninterrupted, gradient(3));
    accumulate(*stays, gradient(3));
    first->step(0.1f, 1);
    second->step(0.1f, 1);
    CHECK(floats(uninterrupted->master()) == floats(stays->master()));
    second->attach({wide.get()});
    CHECK(numbers(*second).at("w.adam.m")[0] == 0.0);
  }
}

TEST_CASE("a parameter that comes later begins at its own first update, in its rule or in another one") {
  auto plain = float_parameter("v", {3, 3}), uninterrupted = float_parameter("w", {3, 3});
  ParameterSpec own;
  own.optimizer = "adam";
  own.init = {"uniform", -1, 1};
  for (const char* name : {"adam", "sgd"}) {
    Parameter late({3, 3}, own);
    late.initialize("w", 1);
    uninterrupted->master().copy_from(late.master());
    auto first = make_optimizer(named("adam")), run = make_optimizer(named(name));
    first->attach({uninterrupted.get()});
    run->attach({plain.get()});
    run->set_steps(5);
    run->attach({plain.get(), &late});
    CHECK(run->own_updates() == std::map<std::string, int64_t>{{"w", 0}});
    for (int step = 0; step < 3; ++step) {
      const Tensor g = random_tensor({3, 3}, dtypes::fp32, 4 + static_cast<uint64_t>(step));
      accumulate(*uninterrupted, g);
      accumulate(late, g);
      accumulate(*plain, g);
      first->step(0.1f, 1);
      run->step(0.1f, 1);
    }
    CHECK(floats(uninterrupted->master()) == floats(late.master()));
    CHECK(run->own_updates() == std::map<std::string, int64_t>{{"w", 3}});
  }
}

TEST_CASE(
    "steps without a gradient do not count as updates of a parameter, and a resumed one goes on at its own count") {
  auto a = float_parameter("w", {3, 3}), b = float_parameter("w", {3, 3}), other = float_parameter("v", {3, 3});
  auto sparse = make_optimizer(named("adam")), dense = make_optimizer(named("adam"));
  sparse->attach({a.get(), other.get()});
  dense->attach({b.get()});
  const auto gradient = [](int step) { return random_tensor({3, 3}, dtypes::fp32, 20 + static_cast<uint64_t>(step)); };
  for (int step = 0; step < 6; ++step) {
    accumulate(*other, gradient(step));
    if (step % 2 == 0) {
      accumulate(*a, gradient(step));
      accumulate(*b, gradient(step));
      dense->step(0.1f, 1);
    }
    sparse->step(0.1f, 1);
  }
  CHECK(floats(a->master()) == floats(b->master()));
  CHECK(sparse->own_updates() == std::map<std::string, int64_t>{{"w", 3}});
  CHECK(dense->own_updates().empty());
  auto c = float_parameter("w", {3, 3}), d = float_parameter("v", {3, 3});
  auto resumed = make_optimizer(named("adam"));
  resumed->attach({c.get(), d.get()});
  c->master().copy_from(a->master());
  for (size_t i = 0; i < 4; ++i) resumed->state()[i].tensor.copy_from(sparse->state()[i].tensor);
  resumed->set_steps(6);
  resumed->set_own_updates(sparse->own_updates());
  accumulate(*a, gradient(7));
  accumulate(*c, gradient(7));
  sparse->step(0.1f, 1);
  resumed->step(0.1f, 1);
  CHECK(floats(a->master()) == floats(c->master()));
  CHECK(contains(error_of([&] {
                   resumed->set_own_updates({{"u", 1}});
                 }),
                 "parameter 'u', which is not updated by any rule"));
  CHECK(contains(error_of([&] { resumed->set_own_updates({{"w", 8}}); }), "'w': 8 updates in 7 steps"));
}

TEST_CASE("a factor of weight decay scales the decay of each rule, and is checked") {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    OptimizerSpec spec = named(name), half = spec;
    spec.weight_decay = 0.5f;
    half.weight_decay = 0.25f;
    auto a = float_parameter("w", {3, 3}), b = float_parameter("w", {3, 3});
    auto scaled = make_optimizer(spec), plain = make_optimizer(half);
    scaled->attach({a.get()});
    plain->attach({b.get()});
    scaled->set_factors({0.5f});
    for (const uint64_t seed : {1, 2}) {
      accumulate(*a, random_tensor({3, 3}, dtypes::fp32, seed));
      accumulate(*b, random_tensor({3, 3}, dtypes::fp32, seed));
      scaled->step(0.1f, 1);
      plain->step(0.1f, 1);
    }
    CHECK(floats(a->master()) == floats(b->master()));
    CHECK(contains(error_of([&] { scaled->set_factors({-1}); }), "factor of weight decay must be at least 0, got -1"));
  }
}

TEST_CASE("attach that refuses changes nothing, and check refuses the same") {
  auto p = float_parameter("w", {3, 3});
  ParameterSpec spec;
  spec.quant = QuantSpec{};
  spec.quant->dtype = dtypes::int4;
  spec.master = MasterKind::kNone;
  Parameter bad({3, 3}, spec);
  bad.initialize("v", 1);
  auto adam = make_optimizer(named("adam"));
  adam->attach({p.get()});
  const std::string text = error_of([&] { adam->attach({&bad}); });
  CHECK(contains(text, "parameter 'v'"));
  CHECK(error_of([&] { adam->check({&bad}); }) == text);
  REQUIRE(adam->state().size() == 2);
  CHECK(adam->state()[0].name == "w.adam.m");
}

TEST_CASE("optimizers are made by name, and values out of range are refused") {
  CHECK(contains(error_of([] { make_optimizer(named("adan")); }),
                 "unknown optimizer 'adan'. Did you mean 'adam'? Known: adafactor, adam, adamw, bop"));
  const auto refused = [](auto change) {
    OptimizerSpec spec = named("adam");
    change(spec);
    return error_of([&] { make_optimizer(spec); });
  };
  CHECK(refused([](OptimizerSpec& s) { s.beta1 = 1; }) == "[optimizer] beta1 must be in [0, 1), got 1");
  CHECK(refused([](OptimizerSpec& s) { s.beta2 = -0.5; }) == "[optimizer] beta2 must be in [0, 1), got -0.5");
  CHECK(contains(refused([](OptimizerSpec& s) { s.beta2 = NAN; }), "beta2 must be in [0, 1)"));
  CHECK(contains(refused([](OptimizerSpec& s) { s.eps = 0; }), "eps must be above 0, got 0"));
  CHECK(contains(refused([](OptimizerSpec& s) { s.weight_decay = -1; }), "weight_decay must be at least 0, got -1"));
  CHECK(contains(refused([](OptimizerSpec& s) { s.clip_norm = INFINITY; }), "clip_norm must be at least 0, got inf"));
  CHECK(contains(refused([](OptimizerSpec& s) { s.momentum = 1; }), "momentum must be in [0, 1), got 1"));
  CHECK(contains(refused([](OptimizerSpec& s) { s.nesterov = true; }), "nesterov needs a momentum above 0"));
  auto p = float_parameter("w", {2});
  auto optimizer = make_optimizer(named("sgd"));
  optimizer->attach({p.get()});
  CHECK(contains(error_of([&] { optimizer->step(0.1f, 0); }), "a step needs at least one sample, got 0"));
  CHECK(contains(error_of([&] { optimizer->step(NAN, 1); }), "the learning rate must be finite and at least 0"));
  register_optimizer("optim_test_own", [](const OptimizerSpec& s) {
    auto t = s;
    t.name = "sgd";
    return make_rule(t);
  });
  CHECK_NOTHROW(make_optimizer(named("optim_test_own")));
  CHECK(error_of([] { register_optimizer("sgd", nullptr); }) ==
        "[register_optimizer] an optimizer 'sgd' exists already");
}

TEST_CASE("an optimizer goes on after any number of steps at once, with the corrections of the repeated product") {
  for (const int64_t steps : {int64_t{2}, int64_t{150}, int64_t{40'000}, int64_t{1} << 53}) {
    INFO(steps);
    OptimizerSpec spec = named("adam");
    spec.beta1 = 0.5;
    spec.beta2 = 0.999;
    auto w = float_parameter("w", {1, 1});
    auto optimizer = make_optimizer(spec);
    optimizer->attach({w.get()});
    optimizer->set_steps(steps);
    accumulate(*w, random_tensor({1, 1}, dtypes::fp32, 3));
    const double g = w->grad().elements()[0], before = w->master().elements()[0];
    optimizer->step(0.1f, 1);
    double c1 = 1, c2 = 1;  // beta^t: below 1e-300 long before the limit
    for (int64_t t = 0; t < std::min<int64_t>(steps + 1, 1'000'000); ++t) {
      c1 *= 0.5;
      c2 *= 0.999;
    }
    const double m = 0.5 * g, v = (1 - 0.999) * g * g;
    const double step = 0.1 * (m / (1 - c1)) / (std::sqrt(v / (1 - c2)) + 1e-8);
    CHECK(std::abs((before - w->master().elements()[0]) - step) <= 1e-4 * std::abs(step) + 1e-7);
  }
}
