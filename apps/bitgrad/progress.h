// The progress of a run for people: on a terminal a line that fits its width, elsewhere plain lines. If standard error
// cannot be written, a log line says so, and the run continues without output.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

// Result of the average of train.ema, to append to the line of an evaluation; empty if there is no average.
std::string average_text(const EvalEvent& event);

class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  // Redraws the line at most ten times a second; without a terminal, prints a line every ten seconds.
  void tick(const TrainEvent& event);
  // The same for another line: line(columns), called if it is time for one.
  void show(const std::function<std::string(int columns)>& line);
  void evaluated(const EvalEvent& event);
  // Printed even if quiet.
  void warn(const std::string& text);
  // Prints a line above the progress line.
  void line(const std::string& text);
  // Removes the progress line: what follows on the terminal begins on a row of its own.
  void erase();

 private:
  void put(const std::string& text);
  std::string erasure() const;
  const bool quiet_, terminal_;
  int drawn_ = 0;  // characters of the line now on the terminal
  bool failed_ = false;
  std::chrono::steady_clock::time_point last_;
};

// The progress line of a run, limited to the available width.

// At most `columns` characters: percent done first, then as many of these as fit, in this order: epoch and total, ETA,
// loss, step and total, metric, bar, samples or tokens per second, learning rate, GMAC/s.
std::string progress_line(const TrainEvent& event, int columns);
// "42s", "3m07s", "2h05m", "3d04h".
std::string duration_text(double seconds);

}  // namespace bitgrad::cli
