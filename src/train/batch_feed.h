// Batches of a data set where a learner reads them. On a device the next one is on its way while a microbatch runs:
// - the host reads it and copies it through pinned memory on a stream of its own, which the computation waits for;
// - or the data set lies there (train/resident_data.h): ids and targets come that way, samples are gathered on the
//   device.
// On the CPU a batch is read when it is asked for, and used in place.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>

#include "bitgrad/base/device_work.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/train/learner.h"
#include "train/resident_data.h"

namespace bitgrad::detail {

class BatchFeed {
 public:
  // On the learner's device, which is current here and in next(). While it lives, the learner's `meanwhile` is its own.
  // `resident`: of `data`, or nullptr. Learner, data and resident outlive it. Errors as Loader.
  BatchFeed(Learner& learner, const Dataset& data, LoaderOptions options, const ResidentData* resident = nullptr);
  ~BatchFeed();
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  // As Loader::next: false at the end; what the data set throws comes out of the call for the batch that it concerns,
  // and of every later one.
  bool next();
  // Of the batch that next() gave, until it is called again.
  const Tensor& x() const { return x_; }
  const Tensor& target() const { return target_; }
  int64_t counted() const { return places_[now_].batch.counted; }  // elements of the target
  // Where the next batch starts: what a checkpoint stores.
  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }

 private:
  // A batch on the host, and its room on the device.
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
  std::unique_ptr<Prefetch> prefetch_;  // of a device
  std::array<Place, 2> places_;
  size_t now_ = 0;        // of next(); the other one is filled ahead
  bool fetched_ = false;  // the other place is filled, or it is known why not
  bool more_ = true;
  std::exception_ptr error_;
  Tensor x_, target_;
  int64_t epoch_, position_;
  std::function<void()> outer_;  // the learner's meanwhile before
};

}  // namespace bitgrad::detail
