// Learning rates at exact steps, and when masters become codes.
#include "bitgrad/optim/schedule.h"

#include <cmath>
#include <limits>

#include "bitgrad/optim/requant.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

ScheduleSpec named(const std::string& name) {
  ScheduleSpec spec;
  spec.name = name;
  return spec;
}
bool near(float got, double expected) { return std::fabs(got - expected) <= 1e-7 * std::fabs(expected) + 1e-12; }

}  // namespace

// [cpu]: no tensors
TEST_CASE("a constant rate is the rate", "[cpu]") {
  for (const int64_t step : {0, 1, 1000000}) CHECK(scheduled_rate(named("constant"), 0.02, step) == 0.02f);
}

TEST_CASE("a step schedule changes exactly at every interval", "[cpu]") {
  ScheduleSpec s = named("step");
  s.every = 100;
  s.factor = 0.5;
  CHECK(scheduled_rate(s, 0.02, 0) == 0.02f);
  CHECK(scheduled_rate(s, 0.02, 99) == 0.02f);
  CHECK(scheduled_rate(s, 0.02, 100) == 0.01f);
  CHECK(scheduled_rate(s, 0.02, 199) == 0.01f);
  CHECK(scheduled_rate(s, 0.02, 200) == 0.005f);
  CHECK(scheduled_rate(s, 0.02, 2500) == static_cast<float>(0.02 * 0x1p-25));
}

TEST_CASE("a step schedule counts its intervals from step 0 for any warm-up, unlike an exponential one") {
  ScheduleSpec s = named("step");
  s.every = 4;
  s.factor = 0.5;
  s.warmup = 3;
  for (const auto& [step, rate] : {std::pair{3, 1.0f}, {4, 0.5f}, {7, 0.5f}, {8, 0.25f}, {12, 0.125f}})
    CHECK(scheduled_rate(s, 1, step) == rate);
  s.name = "exponential";
  s.gamma = 0.5;
  for (const auto& [step, rate] : {std::pair{3, 1.0f}, {6, 1.0f}, {7, 0.5f}, {10, 0.5f}, {11, 0.25f}})
    CHECK(scheduled_rate(s, 1, step) == rate);
}

TEST_CASE("multistep cuts the rate at each given step, by a factor or to given factors") {
  ScheduleSpec s = named("multistep");
  s.at = {40, 60};
  s.factor = 0.1;
  for (const auto& [step, rate] : {std::pair{0, 0.1}, {39, 0.1}, {40, 0.01}, {59, 0.01}, {60, 0.001}, {5000, 0.001}})
    CHECK(near(scheduled_rate(s, 0.1, step), rate));
  s.warmup = 50;  // the cuts count from step 0
  CHECK(scheduled_rate(s, 0.1, 49) == 0.1f);
  CHECK(near(scheduled_rate(s, 0.1, 50), 0.01));
  s.warmup = 0;
  s.factors = {0.5, 0};
  for (const auto& [step, rate] : {std::pair{39, 0.1f}, {40, 0.05f}, {59, 0.05f}, {60, 0.0f}})
    CHECK(scheduled_rate(s, 0.1, step) == rate);
  s.name = "plateau";
  s.factors = {};
  s.factor = 0.5;
  s.final = 0.3;
  for (const auto& [step, rate] : {std::pair{39, 1.0f}, {40, 0.5f}, {60, 0.3f}})
    CHECK(scheduled_rate(s, 1, step) == rate);
}

TEST_CASE("linear falls in a straight line from the end of the warm-up to its end, and stays there") {
  ScheduleSpec s = named("linear");
  s.total = 80;
  s.final = 0.1;
  for (const int step : {0, 1, 10, 79, 80}) CHECK(near(scheduled_rate(s, 0.1, step), 0.1 * (1 - 0.9 * step / 80)));
  CHECK(scheduled_rate(s, 0.1, 1000) == scheduled_rate(s, 0.1, 80));
  s.warmup = 20;
  s.final = 0;
  CHECK(scheduled_rate(s, 0.1, 20) == 0.1f);
  CHECK(near(scheduled_rate(s, 0.1, 50), 0.05));
  CHECK(scheduled_rate(s, 0.1, 80) == 0);
}

TEST_CASE("wsd stays until the cooldown and falls by its shape, and stays at its end") {
  ScheduleSpec s = named("wsd");
  s.total = 100;
  s.cooldown = 20;
  s.warmup = 5;
  s.final = 0.1;
  const auto fallen = [&](const char* shape, int step) {
    s.shape = shape;
    return (1 - static_cast<double>(scheduled_rate(s, 1, step))) / 0.9;
  };
  for (const char* shape : {"linear", "sqrt", "cosine"}) {
    for (const int step : {5, 40, 80}) CHECK(fallen(shape, step) == 0);
    for (const int step : {100, 101, 10000}) CHECK(std::fabs(fallen(shape, step) - 1) < 1e-7);
  }
  CHECK(std::fabs(fallen("linear", 85) - 0.25) < 1e-7);
  CHECK(std::fabs(fallen("sqrt", 85) - 0.5) < 1e-7);
  CHECK(std::fabs(fallen("cosine", 85) - (1 - std::cos(M_PI / 4)) / 2) < 1e-7);
}

TEST_CASE("one_cycle has the rates of torch.optim's OneCycleLR") {
  ScheduleSpec s = named("one_cycle");
  s.total = 80;
  const std::pair<int, double> torch[] = {
      {0, 0.0040000000000000036}, {10, 0.04140915328870464}, {22, 0.09926451531429935},  {23, 0.09996073709416556},
      {24, 0.099962397775621},    {40, 0.08007976712937445}, {60, 0.027684200588314417}, {78, 0.000307081389146322}};
  for (const auto& [step, rate] : torch) {
    INFO(step);
    CHECK(near(scheduled_rate(s, 0.1, step), rate));
  }
  CHECK(near(scheduled_rate(s, 0.1, 79), 7.712922125602267e-05));
  CHECK(std::fabs(scheduled_rate(s, 0.1, 80) - 0.1 / 25 / 1e4) < 1e-12);
  CHECK(scheduled_rate(s, 0.1, 1000) == scheduled_rate(s, 0.1, 80));
  s.total = 1;
  CHECK(std::isfinite(scheduled_rate(s, 0.1, 0)));
}

TEST_CASE("cosine goes from the rate through its middle to its end, and stays there") {
  ScheduleSpec s = named("cosine");
  s.total = 1000;
  s.final = 0.1;
  CHECK(scheduled_rate(s, 0.4, 0) == 0.4f);
  CHECK(near(scheduled_rate(s, 0.4, 500), 0.4 * 0.55));
  CHECK(near(scheduled_rate(s, 0.4, 250), 0.4 * (0.1 + 0.9 * (1 + std::cos(M_PI / 4)) / 2)));
  CHECK(near(scheduled_rate(s, 0.4, 1000), 0.04));
  CHECK(scheduled_rate(s, 0.4, 5000) == scheduled_rate(s, 0.4, 1000));
  s.warmup = 200;
  CHECK(scheduled_rate(s, 0.4, 200) == 0.4f);
  CHECK(near(scheduled_rate(s, 0.4, 600), 0.4 * 0.55));
  s.final = 0;
  for (const int64_t step : {1000, 1001, 1500, 2600, 1000000}) CHECK(std::fabs(scheduled_rate(s, 0.4, step)) <= 1e-17f);
}

TEST_CASE("an exponential schedule counts from the end of the warm-up", "[cpu]") {
  ScheduleSpec s = named("exponential");
  s.gamma = 0.9;
  s.every = 10;
  s.warmup = 5;
  CHECK(scheduled_rate(s, 1, 5) == 1);
  CHECK(scheduled_rate(s, 1, 14) == 1);
  CHECK(scheduled_rate(s, 1, 15) == 0.9f);
  CHECK(near(scheduled_rate(s, 1, 105), std::pow(0.9, 10)));
  s.gamma = 0.5;
  CHECK(scheduled_rate(s, 1, 5 + 10 * 20) == 0x1p-20f);
  s.gamma = 0.999999;
  s.every = 1;
  CHECK(near(scheduled_rate(s, 1, 5 + 2000000), std::exp(2000000 * std::log(0.999999))));
}

TEST_CASE("warm-up climbs in equal steps to the full rate", "[cpu]") {
  for (const std::string& name : schedule_names()) {
    ScheduleSpec s = named(name);
    s.warmup = 4;
    s.total = 100;
    s.every = 50;
    s.cooldown = 20;
    s.at = {50};
    if (name == "one_cycle") continue;  // rises by itself
    INFO(name);
    CHECK(scheduled_rate(s, 0.8, 0) == 0.2f);
    CHECK(scheduled_rate(s, 0.8, 1) == 0.4f);
    CHECK(scheduled_rate(s, 0.8, 3) == 0.8f);
    CHECK(scheduled_rate(s, 0.8, 4) == 0.8f);
  }
}

TEST_CASE("unknown schedules and values out of range are refused", "[cpu]") {
  CHECK(contains(error_of([] { check_schedule(named("cosin")); }),
                 "unknown schedule 'cosin'. Did you mean 'cosine'? Known: constant, step, multistep, linear, cosine"));
  const auto refused = [](auto change) {
    ScheduleSpec s = named("step");
    change(s);
    return error_of([&] { check_schedule(s); });
  };
  CHECK(refused([](ScheduleSpec&) {}).empty());
  CHECK(refused([](ScheduleSpec& s) { s.every = 0; }) == "[schedule] every must be at least 1 step, got 0");
  CHECK(refused([](ScheduleSpec& s) { s.warmup = -1; }) == "[schedule] warmup must be at least 0 steps, got -1");
  CHECK(refused([](ScheduleSpec& s) { s.factor = 0; }) == "[schedule] factor must be above 0, got 0");
  CHECK(contains(refused([](ScheduleSpec& s) { s.factor = NAN; }), "factor must be above 0"));
  CHECK(contains(refused([](ScheduleSpec& s) { s.gamma = -1; }), "gamma must be above 0, got -1"));
  CHECK(contains(refused([](ScheduleSpec& s) { s.final = -0.1; }), "final must be at least 0, got -0.1"));
  CHECK(contains(refused([](ScheduleSpec& s) { s.total = 0; }), "total must be at least 1 step, got 0"));
  const auto named_refused = [&](const char* name, auto change) {
    return refused([&](ScheduleSpec& s) {
      s.name = name;
      s.total = 100;
      change(s);
    });
  };
  CHECK(contains(named_refused("multistep", [](ScheduleSpec&) {}), "multistep needs the steps `at`"));
  CHECK(contains(named_refused("multistep", [](ScheduleSpec& s) { s.at = {5, 5}; }), "must ascend, got 5 after 5"));
  CHECK(contains(named_refused("multistep", [](ScheduleSpec& s) { s.at = {-1}; }), "must ascend, got -1"));
  CHECK(contains(named_refused("multistep",
                               [](ScheduleSpec& s) {
                                 s.at = {5, 6};
                                 s.factors = {1};
                               }),
                 "got 1 factors, expected one for each of the 2 steps"));
  CHECK(contains(named_refused("multistep",
                               [](ScheduleSpec& s) {
                                 s.at = {5};
                                 s.factors = {-1};
                               }),
                 "factors must be at least 0, got -1"));
  CHECK(contains(named_refused("wsd", [](ScheduleSpec& s) { s.cooldown = 101; }), "fit into the 100 steps"));
  CHECK(contains(named_refused("wsd", [](ScheduleSpec& s) { s.shape = "sqr"; }), "Did you mean 'sqrt'?"));
  CHECK(contains(named_refused("one_cycle", [](ScheduleSpec& s) { s.warmup = 2; }), "got a warmup of 2 steps"));
  CHECK(contains(named_refused("one_cycle", [](ScheduleSpec& s) { s.rise = 1; }), "rise must be between 0 and 1"));
  CHECK(contains(named_refused("one_cycle", [](ScheduleSpec& s) { s.div = 0.5; }), "div must be at least 1, got 0.5"));
}

TEST_CASE("requantization is due every N microbatches, N a multiple of A, else the nearest are named", "[cpu]") {
  const auto check = [](int64_t a, int64_t n) { return error_of([&] { check_requant({a, n}); }); };
  for (const int64_t a : {1, 2, 3, 8})
    for (const int64_t k : {1, 2, 5}) CHECK(check(a, a * k).empty());
  CHECK(check(4, 6) ==
        "[requantize_every] 6 microbatches is not a multiple of the 4 microbatches of an optimizer step. Nearest: 4 or "
        "8");
  CHECK(check(4, 2) ==
        "[requantize_every] 2 microbatches is not a multiple of the 4 microbatches of an optimizer step. Nearest: 4");
  CHECK(check(3, 100) ==
        "[requantize_every] 100 microbatches is not a multiple of the 3 microbatches of an optimizer step. Nearest: 99 "
        "or 102");
  CHECK(contains(check(0, 4), "microbatches per optimizer step must be at least 1, got 0"));
  CHECK(contains(check(1, 0), "must be at least 1 microbatch, got 0"));
  CHECK(requant_due({2, 4}, 4));
  CHECK_FALSE(requant_due({2, 4}, 2));
  CHECK(requant_due({2, 4}, 8));
}
