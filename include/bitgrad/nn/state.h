// State of the current training step, shared by the modules of a model, the optimizer and the trainer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Non-finite flags: one word per named tensor, which kernels OR into; checked once per optimizer step
// (TrainState::check_flags). A word of a device reaches the board at poll_errors() (kernels/flag.h).
class FlagBoard {
 public:
  // Returns the word of `name` in memory of the current device, creating it if needed. On the CPU it stays valid as
  // long as the board, on other devices until the flags are read or dropped.
  uint32_t* word(const std::string& name);
  // Names of all words that are known to be set, in order of creation.
  std::vector<std::string> raised() const;
  void clear();

 private:
  struct Entry {
    std::string name;
    uint32_t word = 0;
  };
  std::deque<std::shared_ptr<Entry>> entries_;  // shared with pending device flags
};

class KvCaches;  // nn/kv_cache.h

// Where the rows of the current batch lie in their sequences; read by position-aware layers.
struct SequenceState {
  int64_t first = 0;  // position of the first row, in every sample
  // Attention appends the keys and values of the rows to these caches and attends to all earlier rows. nullptr: the
  // rows are whole sequences and `first` is 0.
  std::shared_ptr<KvCaches> caches = nullptr;
  // int32 [n,t]: row t of a sample attends to positions from starts[n,t] on, the start of its document (document_starts
  // in ops/attention.h). Undefined: from 0 on. Must stay until backward is done.
  Tensor starts = {};
};

// Mean and unbiased variance of one batch in a norm, which its running statistics have yet to follow.
struct BatchStatistics {
  std::string path = {};  // of the norm
  float momentum = 0;
  Tensor mean = {}, var = {};  // fp32 [statistics]
};

// When observers of activations follow a microbatch of training: before its codes are computed, or, in order, at the
// end of its window, so that all microbatches of a window use the same ranges. kAuto: kMicrobatch, and kWindow on
// several ranks.
enum class ObserverUpdate : uint8_t { kAuto, kMicrobatch, kWindow };
template <>
struct EnumNames<ObserverUpdate> {
  static constexpr std::string_view all[] = {"auto", "microbatch", "window"};
};

// The range of one batch, which an observer has yet to follow.
struct ObservedRange {
  std::string path = {};  // of the activation quantizer
  Tensor ends = {};       // fp32 [2, blocks]: minimum, maximum
};

struct StepState {
  uint64_t seed = 0;
  int64_t step = 0;        // completed optimizer steps
  int64_t microbatch = 0;  // global index of the next microbatch, over all ranks
  bool training = true;
  bool calibrating = false;  // evaluation mode, but observers see the batches and learned steps get their first values
  // A block is being recomputed in backward (autograd/tape.h): same values, but anything that a forward pass
  // stores, counts or reports must not be stored, counted or reported again.
  bool recomputing = false;
  // Learned steps of activations may be fitted to this microbatch: the first of its window that counts.
  bool fits_steps = true;
  // Set on one of several ranks: norms append the statistics of their batches here, in place of moving their running
  // ones, which follow all ranks' batches when the window ends.
  std::optional<std::vector<BatchStatistics>> batch_statistics = {};
  // Set for ObserverUpdate::kWindow: observers append the ranges of their batches here.
  std::optional<std::vector<ObservedRange>> observed_ranges = {};
  // Codes that quantizers of activations return in place of those they compute, by their path: those of the network of
  // integers that the model is (compute: integer). Gradients are the quantizer's own.
  std::map<std::string, Tensor> exact_codes = {};
  double progress = 0;  // completed steps / steps of the run, 0 to 1; 0 if the length is unknown
  // Parameters are only read, and a file sets them: Module::initialize leaves them unset (Parameter::leave_unset).
  bool read_only = false;
  FlagBoard flags = {};
  SequenceState sequence = {};
  // Called after each module has run, with its path, input and output (Module::operator()).
  std::function<void(const std::string& path, const Tensor& in, const Tensor& out)> on_forward = {};
};

}  // namespace bitgrad
