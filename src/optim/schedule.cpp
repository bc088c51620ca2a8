#include "bitgrad/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/math.h"
#include "bitgrad/base/text.h"
#include "optim/power.h"

namespace bitgrad {
namespace {

using detail::power;

struct Rule {
  const char* name;
  double (*factor)(const ScheduleSpec&, int64_t step);
};

double part_done(const ScheduleSpec& s, int64_t step) {
  const int64_t total = std::max<int64_t>(s.total - s.warmup, 1);
  return static_cast<double>(std::min(step - s.warmup, total)) / static_cast<double>(total);
}

// 0 to 1 along half a cosine.
double half_cosine(double q) { return 0.5 * (1 - math::cos_turns(q * 0.5)); }

struct Cooldown {
  const char* name;
  double (*fall)(double q);
};
constexpr Cooldown kCooldowns[] = {
    {"linear", [](double q) { return q; }}, {"sqrt", [](double q) { return std::sqrt(q); }}, {"cosine", half_cosine}};

const Cooldown& find_cooldown(const std::string& name) {
  for (const Cooldown& s : kCooldowns)
    if (s.name == name) return s;
  fail("schedule", unknown_name("shape", name, cooldown_shapes()));
}

double multistep(const ScheduleSpec& s, int64_t step) {
  const auto passed = std::upper_bound(s.at.begin(), s.at.end(), step) - s.at.begin();
  if (passed == 0) return 1;
  return s.factors.empty() ? power(s.factor, passed) : s.factors[static_cast<size_t>(passed - 1)];
}

double wsd(const ScheduleSpec& s, int64_t step) {
  const int64_t done = step - (s.total - s.cooldown);
  if (done <= 0) return 1;
  const double q = static_cast<double>(std::min(done, s.cooldown)) / static_cast<double>(s.cooldown);
  return 1 - (1 - s.final) * find_cooldown(s.shape).fall(q);
}

double one_cycle(const ScheduleSpec& s, int64_t step) {
  const auto at = static_cast<double>(step), end = static_cast<double>(s.total);
  const double top = s.rise * static_cast<double>(s.total + 1) - 1, low = 1 / s.div;
  if (at <= top && top > 0) return low + (1 - low) * half_cosine(at / top);
  const double q = end > top ? std::min((at - top) / (end - top), 1.0) : 1.0;
  return 1 - (1 - low / s.final_div) * half_cosine(q);
}

constexpr Rule kRules[] = {
    {"constant", [](const ScheduleSpec&, int64_t) { return 1.0; }},
    {"step", [](const ScheduleSpec& s, int64_t step) { return power(s.factor, step / s.every); }},
    {"multistep", multistep},
    {"linear", [](const ScheduleSpec& s, int64_t step) { return 1 - (1 - s.final) * part_done(s, step); }},
    {"cosine",
     [](const ScheduleSpec& s, int64_t step) {
       return s.final + (1 - s.final) * 0.5 * (1 + math::cos_turns(part_done(s, step) * 0.5));
     }},
    {"exponential", [](const ScheduleSpec& s, int64_t step) { return power(s.gamma, (step - s.warmup) / s.every); }},
    {"wsd", wsd},
    {"one_cycle", one_cycle},
    {"plateau", [](const ScheduleSpec& s, int64_t step) { return std::max(multistep(s, step), s.final); }},
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

std::vector<std::string> cooldown_shapes() {
  std::vector<std::string> names;
  for (const Cooldown& s : kCooldowns) names.push_back(s.name);
  return names;
}

void check_schedule(const ScheduleSpec& s) {
  find(s.name);
  find_cooldown(s.shape);
  require(s.every >= 1, "schedule", "every must be at least 1 step, got ", s.every);
  require(s.warmup >= 0, "schedule", "warmup must be at least 0 steps, got ", s.warmup);
  require(s.warmup_from >= 0 && s.warmup_from <= 1, "schedule", "warmup_from must be in [0, 1], got ", s.warmup_from);
  require(s.total >= 1, "schedule", "total must be at least 1 step, got ", s.total);
  require(s.factor > 0 && std::isfinite(s.factor), "schedule", "factor must be above 0, got ", s.factor);
  require(s.gamma > 0 && std::isfinite(s.gamma), "schedule", "gamma must be above 0, got ", s.gamma);
  require(s.final >= 0 && std::isfinite(s.final), "schedule", "final must be at least 0, got ", s.final);
  for (size_t i = 0; i < s.at.size(); ++i)
    require(s.at[i] > (i > 0 ? s.at[i - 1] : -1), "schedule", "the steps of `at` must ascend, got ", s.at[i],
            i > 0 ? concat(" after ", s.at[i - 1]) : "");
  require(s.name != "multistep" || !s.at.empty(), "schedule", "multistep needs the steps `at` which the rate changes");
  require(s.factors.empty() || s.factors.size() == s.at.size(), "schedule", "got ", s.factors.size(),
          " factors, expected one for each of the ", s.at.size(), " steps of `at`");
  for (const double f : s.factors)
    require(f >= 0 && std::isfinite(f), "schedule", "factors must be at least 0, got ", f);
  require(s.cooldown >= 1 && (s.name != "wsd" || s.cooldown <= s.total - s.warmup), "schedule",
          "cooldown must be at least 1 step and fit into the ", s.total - s.warmup, " steps after the warm-up, got ",
          s.cooldown);
  require(s.rise > 0 && s.rise < 1, "schedule", "rise must be between 0 and 1, got ", s.rise);
  for (const auto& [what, value] : {std::pair{"div", s.div}, {"final_div", s.final_div}})
    require(value >= 1 && std::isfinite(value), "schedule", what, " must be at least 1, got ", value);
  require(s.name != "one_cycle" || s.warmup == 0, "schedule", "one_cycle rises by itself: got a warmup of ", s.warmup,
          " steps, expected none");
}

float scheduled_rate(const ScheduleSpec& s, double lr, int64_t step) {
  if (step < s.warmup) {
    const double part = static_cast<double>(step + 1), steps = static_cast<double>(s.warmup);
    if (s.warmup_from == 0) return static_cast<float>(lr * part / steps);
    return static_cast<float>(lr * (s.warmup_from + (1 - s.warmup_from) * part / steps));
  }
  return static_cast<float>(lr * find(s.name).factor(s, step));
}

}  // namespace bitgrad
