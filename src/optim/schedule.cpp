#include "bitgrad/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/math.h"
#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

struct Rule {
  const char* name;
  double (*factor)(const ScheduleSpec&, int64_t step);
};

// Exponentiation by squaring: the same bits with every C library, and fast even after a million steps.
double power(double base, int64_t n) {
  double p = 1;
  for (; n > 0; n /= 2, base *= base)
    if (n % 2 == 1) p *= base;
  return p;
}

double part_done(const ScheduleSpec& s, int64_t step) {
  const int64_t total = std::max<int64_t>(s.total - s.warmup, 1);
  return static_cast<double>(std::min(step - s.warmup, total)) / static_cast<double>(total);
}

constexpr Rule kRules[] = {
    {"constant", [](const ScheduleSpec&, int64_t) { return 1.0; }},
    {"step", [](const ScheduleSpec& s, int64_t step) { return power(s.factor, step / s.every); }},
    {"cosine",
     [](const ScheduleSpec& s, int64_t step) {
       return s.final + (1 - s.final) * 0.5 * (1 + math::cos_turns(part_done(s, step) * 0.5));
     }},
    {"exponential", [](const ScheduleSpec& s, int64_t step) { return power(s.gamma, (step - s.warmup) / s.every); }},
};

const Rule& find(const std::string& name) {
  for (const Rule& r : kRules)
    if (r.name == name) return r;
  fail("schedule", unknown_name("schedule", name, schedule_names()));
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Rule& r : kRules) names.push_back(r.name);
  return names;
}

void check_schedule(const ScheduleSpec& s) {
  find(s.name);
  require(s.every >= 1, "schedule", "every must be at least 1 step, got ", s.every);
  require(s.warmup >= 0, "schedule", "warmup must be at least 0 steps, got ", s.warmup);
  require(s.total >= 1, "schedule", "total must be at least 1 step, got ", s.total);
  require(s.factor > 0 && std::isfinite(s.factor), "schedule", "factor must be above 0, got ", s.factor);
  require(s.gamma > 0 && std::isfinite(s.gamma), "schedule", "gamma must be above 0, got ", s.gamma);
  require(s.final >= 0 && std::isfinite(s.final), "schedule", "final must be at least 0, got ", s.final);
}

float scheduled_rate(const ScheduleSpec& s, double lr, int64_t step) {
  if (step < s.warmup) return static_cast<float>(lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup));
  return static_cast<float>(lr * find(s.name).factor(s, step));
}

}  // namespace bitgrad
