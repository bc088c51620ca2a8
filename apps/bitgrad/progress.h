// What a person sees of a run: on a terminal a line that fits its width, plain lines elsewhere. Where standard error
// takes no more, a line in the log says so, and the run goes on unseen.
#pragma once

#include <chrono>
#include <string>

#include "bitgrad/train/trainer.h"

namespace bitgrad::cli {

class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  // Redraws the line at most ten times a second; without a terminal, a line every ten seconds.
  void tick(const TrainEvent& event);
  void evaluated(const EvalEvent& event);
  // Printed even when quiet.
  void warn(const std::string& text);
  // A line of its own, above the line of progress.
  void line(const std::string& text);

 private:
  void put(const std::string& text);
  void erase();
  void draw(const TrainEvent& event);
  std::string erasure() const;
  const bool quiet_, terminal_;
  int drawn_ = 0;  // characters of the line that stands on the terminal
  bool failed_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace bitgrad::cli
