// Learning-rate schedules: pure functions of the optimizer step. Computed in double, rounded once to fp32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad {

// With t = step - warmup and T = max(total - warmup, 1), in optimizer steps; cosine caps t at T:
//   constant:     lr
//   step:         lr * factor^floor(step / every)
//   cosine:       lr * (final + (1 - final) * (1 + cos(pi t / T)) / 2)
//                 Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5
//   exponential:  lr * gamma^floor(t / every)
// Warmup: steps s < warmup use lr * (s + 1) / warmup.
struct ScheduleSpec {
  std::string name = "constant";
  int64_t every = 1;    // in optimizer steps: step, exponential
  double factor = 0.5;  // step
  double gamma = 1.0;   // exponential
  double final = 0.0;   // cosine: final rate as a fraction of lr
  int64_t warmup = 0;   // in optimizer steps
  int64_t total = 1;    // in optimizer steps, of the whole run
};

std::vector<std::string> schedule_names();
// Throws Error for an unknown name or a value out of range.
void check_schedule(const ScheduleSpec& spec);
// Learning rate of optimizer step `step` >= 0, for the base rate lr.
float scheduled_rate(const ScheduleSpec& spec, double lr, int64_t step);

}  // namespace bitgrad
