// What a step of training knows of itself: shared by the modules of a model, the optimizer and the trainer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Non-finite flags: one word per named tensor that kernels OR into; checked once per optimizer step
// (Learner::check_flags). On a device a word reaches the board at poll_errors() (kernels/flag.h).
class FlagBoard {
 public:
  // The word of `name`, in memory of the current device. CPU: stays valid as long as the board; else until the flags
  // are read or dropped.
  uint32_t* word(const std::string& name);
  // Names whose word is known to be set, in order of creation.
  std::vector<std::string> raised() const;
  void clear();

 private:
  struct Entry {
    std::string name;
    uint32_t word = 0;
  };
  std::deque<std::shared_ptr<Entry>> entries_;  // shared with the flags of devices
};

class KvCaches;  // nn/kv_cache.h

// Where the rows of a batch lie in their sequences: for layers that know positions.
struct SequenceState {
  int64_t first = 0;  // position of the first row, of every sample
  // Attention appends keys and values of the rows to these, and sees those of all rows before. nullptr: the rows are
  // whole sequences, and first is 0.
  std::shared_ptr<KvCaches> caches = nullptr;
  // int32 [n,t]: the position from which on row t of a sample attends, that of the first id of its document
  // (document_starts of ops/attention.h). Undefined: from 0 on. It stays until backward is done.
  Tensor starts = {};
};

struct StepState {
  uint64_t seed = 0;
  int64_t step = 0;        // completed optimizer steps
  int64_t microbatch = 0;  // global microbatches done
  bool training = true;
  bool calibrating = false;  // evaluation mode, but observers see the batches and learned steps take first values
  // A block runs again in backward (autograd/recompute.h): the same numbers, but what a forward pass stores, counts or
  // reports is stored, counted and reported already.
  bool recomputing = false;
  double progress = 0;  // steps done / steps of the run, 0 to 1; 0 where the length is not known
  FlagBoard flags = {};
  SequenceState sequence = {};
  // Told of every module that runs, after it has: its path, what it took and what it gave (Module::operator()).
  std::function<void(const std::string& path, const Tensor& in, const Tensor& out)> on_forward = {};
};

}  // namespace bitgrad
