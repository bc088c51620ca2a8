// What a step of training knows of itself: shared by the modules of a model, the optimizer and the trainer.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace bitgrad {

// Non-finite flags: one word per named tensor that kernels OR into; read once per optimizer step.
class FlagBoard {
 public:
  // The word of `name`; stays valid as long as the board.
  uint32_t* word(const std::string& name);
  // Names whose word is set, in order of creation.
  std::vector<std::string> raised() const;
  void clear();

 private:
  struct Entry {
    std::string name;
    uint32_t word = 0;
  };
  std::deque<Entry> entries_;
};

struct StepState {
  uint64_t seed = 0;
  int64_t step = 0;        // completed optimizer steps
  int64_t microbatch = 0;  // global microbatches done
  bool training = true;
  double progress = 0;  // steps done / steps of the run, 0 to 1; 0 where the length is not known
  FlagBoard flags;
};

}  // namespace bitgrad
