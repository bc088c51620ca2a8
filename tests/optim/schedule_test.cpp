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

TEST_CASE("a step schedule changes exactly every so many steps", "[cpu]") {
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

TEST_CASE("cosine goes from the rate through its middle to its end, and stays there", "[cpu]") {
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
  CHECK(std::fabs(scheduled_rate(s, 0.4, 1000)) <= 1e-17f);
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
    INFO(name);
    CHECK(scheduled_rate(s, 0.8, 0) == 0.2f);
    CHECK(scheduled_rate(s, 0.8, 1) == 0.4f);
    CHECK(scheduled_rate(s, 0.8, 3) == 0.8f);
    CHECK(scheduled_rate(s, 0.8, 4) == 0.8f);
  }
}

TEST_CASE("unknown schedules and values out of range are refused", "[cpu]") {
  CHECK(contains(error_of([] { check_schedule(named("cosin")); }),
                 "unknown schedule 'cosin'. Did you mean 'cosine'? Known: constant, step, cosine, exponential"));
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
