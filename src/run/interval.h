// Sums and times of a run's steps since its last report.
#pragma once

#include <algorithm>
#include <chrono>

#include "bitgrad/run/trainer.h"

namespace bitgrad::detail {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sums over the steps since the last report, including those before a resume.
struct Interval {
  Interval() = default;
  explicit Interval(const RunCounters& c)
      : loss(c.unreported_loss),
        weight(c.unreported_weight),
        correct(c.unreported_correct),
        counted(c.unreported_counted) {}
  double loss = 0, weight = 0;       // weight: of the target elements
  int64_t correct = 0, counted = 0;  // counted: target elements that count
  int64_t samples = 0;
  Clock::time_point start = Clock::now();
  void add(const StepResult& r) {
    loss += r.loss;
    weight += r.weight;
    correct += r.correct;
    counted += r.counted;
    samples += r.samples;
  }
  void report(TrainEvent& e, bool classes, int64_t positions) const {
    const double n = static_cast<double>(std::max<int64_t>(counted, 1));
    e.loss = weight > 0 ? loss / weight : 0;
    e.accuracy = classes ? 100.0 * static_cast<double>(correct) / n : -1;
    e.samples_per_s = static_cast<double>(samples) / std::max(seconds_since(start), 1e-9);
    e.tokens_per_s = e.samples_per_s * static_cast<double>(positions);
  }
  void keep(RunCounters& c) const {
    c.unreported_loss = loss;
    c.unreported_weight = weight;
    c.unreported_correct = correct;
    c.unreported_counted = counted;
  }
};

}  // namespace bitgrad::detail
