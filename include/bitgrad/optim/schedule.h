// Learning-rate schedules: pure functions of the optimizer step. Computed in double, rounded once to fp32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad {

// With t = step - warmup, T = max(total - warmup, 1) and p = min(t, T) / T, in optimizer steps:
//   constant:     lr
//   step:         lr * factor^floor(step / every)
//   multistep:    lr * factor^k, k the number of `at` <= step; with factors: lr * factors[k - 1] where k > 0
//   plateau:      the same with the steps at which a trainer found no improvement, at least lr * final
//   linear:       lr * (1 - (1 - final) * p)
//   cosine:       lr * (final + (1 - final) * (1 + cos(pi t / T)) / 2)
//                 Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5
//   exponential:  lr * gamma^floor(t / every)
//   wsd:          lr until total - cooldown, then lr * (1 - (1 - final) * f(q)), q = (step - (total - cooldown)) /
//                 cooldown, at most 1; f(q) by shape: linear q, sqrt sqrt(q), cosine (1 - cos(pi q)) / 2
//                 Hagele et al. 2024, arXiv 2405.18392
//   one_cycle:    from lr / div to lr at step rise * (total + 1) - 1, then to lr / (div * final_div) at total, both by
//                 half a cosine. Smith and Topin 2017, arXiv 1708.07120, as torch.optim's OneCycleLR of total + 1 steps
// Warmup: steps s < warmup use lr * (w + (1 - w) * (s + 1) / warmup), w = warmup_from; not with one_cycle.
struct ScheduleShape {
  std::string name = "constant";
  double factor = 0.5;                 // step, multistep, plateau
  std::vector<double> factors = {};    // multistep: one for each `at`, in place of factor; empty: factor
  double gamma = 1.0;                  // exponential
  double final = 0.0;                  // linear, cosine, wsd, plateau: final or least rate as a fraction of lr
  std::string shape = "linear";        // wsd: linear, sqrt, cosine
  double warmup_from = 0;              // rate before the warm-up as a fraction of lr
  double rise = 0.3;                   // one_cycle: part of the run in which the rate rises
  double div = 25, final_div = 10000;  // one_cycle
  friend bool operator==(const ScheduleShape&, const ScheduleShape&) = default;
};
// With its lengths, in optimizer steps.
struct ScheduleSpec : ScheduleShape {
  int64_t every = 1;             // step, exponential
  std::vector<int64_t> at = {};  // ascending: multistep, plateau
  int64_t cooldown = 1;          // wsd
  int64_t warmup = 0;
  int64_t total = 1;  // the whole run
};

std::vector<std::string> schedule_names();
std::vector<std::string> cooldown_shapes();
// Throws Error for an unknown name or a value out of range.
void check_schedule(const ScheduleSpec& spec);
// Learning rate of optimizer step `step` >= 0, for the base rate lr.
float scheduled_rate(const ScheduleSpec& spec, double lr, int64_t step);

}  // namespace bitgrad
