// What the ranks of a run tell each other besides gradients: a batch of one of them; and when a window ends, the
// results of its microbatches and the statistics of norms.
#pragma once

#include <cstring>
#include <string>

#include "bitgrad/dist/communicator.h"
#include "train/train_state.h"

namespace bitgrad::detail {

// Values of several types, one behind the other, as one rank sends them to another.
class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    put(&value, sizeof(T));
  }
  void put(const std::string& text) {
    put(std::ssize(text));
    put(text.data(), text.size());
  }
  void put(const void* from, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  bool ended() const { return left_.empty(); }
  std::span<const std::byte> take(size_t bytes) {
    const auto part = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return part;
  }
  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string text() {
    const auto part = take(static_cast<size_t>(get<int64_t>()));
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> left_;
};

void write(Writer& to, const StepResult& result);  // but for stepped and skipped
StepResult read_result(Reader& from);
// Contiguous, without scales; read to the current device.
void write(Writer& to, const Tensor& tensor);
Tensor read_tensor(Reader& from);

// The tensor `own` of rank `from`, on the current device of every rank. `own`: contiguous, without scales; ignored on
// the other ranks.
Tensor from_rank(Communicator& ranks, int64_t from, const Tensor& own);

// Learned steps of activations are fitted to the first microbatch of a window that counts, which one rank runs. If one
// would be, the others run its forward pass too, and keep nothing else of it. `x`: the first microbatch of this rank,
// of this `weight`; undefined: it has none. Its window has just begun.
void fit_steps_of_all(TrainState& s, const Tensor& x, double weight);

// Ends the front of a window: sets last_results to those of all ranks, and moves what follows the batches of a window
// at its end: running statistics of norms on several ranks, observers. If a rank has failed in its part of the window,
// throws its Error before anything is updated.
void end_batches(TrainState& s);

}  // namespace bitgrad::detail
