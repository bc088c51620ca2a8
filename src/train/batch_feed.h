// Delivers the batches of a data set to a learner's device. On a device, the next batch is prepared while a microbatch
// runs:
// - the host reads it and copies it through pinned memory on a separate stream, which the computation waits for;
// - or, if the data set resides on the device (train/resident_data.h), only ids and targets are copied and the device
//   gathers the samples.
// On the CPU a batch is read on request and used in place.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>

#include "bitgrad/base/device.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/train/learner.h"
#include "train/resident_data.h"

namespace bitgrad::detail {

class BatchFeed {
 public:
  // Uses the learner's device, which must be current here and in next(). Replaces the learner's `meanwhile` for its
  // lifetime. `resident` is that of `data`, or nullptr. learner, data and resident must outlive it. Errors as Loader.
  BatchFeed(Learner& learner, const Dataset& data, LoaderOptions options, const ResidentData* resident = nullptr);
  ~BatchFeed();
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  // Like Loader::next: returns false at the end. An exception from the data set is thrown by the call for its batch,
  // and by every later one.
  bool next();
  // The batch of the last next(), valid until the following call.
  const Tensor& x() const { return x_; }
  const Tensor& target() const { return target_; }
  int64_t counted() const { return places_[now_].batch.counted; }  // target elements that count
  double weight() const;                                           // their total weight under the learner's loss
  // Where the next batch starts, for checkpoints.
  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }

 private:
  // A batch on the host, and its buffers on the device.
  struct Place {
    Batch batch;
    Tensor x, target, ids;
  };
  void make_room(int64_t rows, const Dataset& data);
  void fetch();
  void copy(Place& place);
  bool next_here();
  bool next_there();
  void take();

  Learner& learner_;
  const Dataset& data_;
  const LoaderOptions options_;
  const ResidentData* const resident_;
  Loader loader_;
  std::unique_ptr<Prefetch> prefetch_;  // on devices only
  std::array<Place, 2> places_;
  size_t now_ = 0;        // index of the current batch; the other place is filled ahead
  bool fetched_ = false;  // the other place is filled, or filling it reached the end or failed
  bool more_ = true;
  std::exception_ptr error_;
  Tensor x_, target_;
  int64_t epoch_, position_;
  std::function<void()> outer_;  // the learner's previous meanwhile
};

}  // namespace bitgrad::detail
