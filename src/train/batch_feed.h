// Delivers the batches of a data set to a learner's device. On a device, the next batch is prepared while a microbatch
// runs:
// - the host reads it and copies it through pinned memory on a separate stream, which the computation waits for;
// - or, if the data set resides on the device (ResidentData), only ids and targets are copied and the device
//   gathers the samples.
// On the CPU a batch is read on request and used in place.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "bitgrad/base/device.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/tensor/tensor.h"
#include "bitgrad/train/learner.h"

#include "data/augment.h"

namespace bitgrad::detail {

// A data set in device memory, in the format in which the host stores it (Dataset::stored), and batches gathered from
// it.

class ResidentData {
 public:
  // Bytes of device memory that the data set needs; 0 if it does not report how it is stored.
  static int64_t bytes_of(const Dataset& dataset);
  // Copies the samples to the current device; targets stay on the host. Throws Error if the data set does not report
  // how it is stored or the report is inconsistent, and Error(kMemory) if the device is full.
  explicit ResidentData(const Dataset& dataset);

  // Writes the samples `ids` [n], int64 and in range, to x [n, features] of the data set's dtype, on the current
  // device.
  void gather(const Tensor& ids, const Tensor& x) const;
  // The same for images, augmented; `images` must be of the same data set.
  void gather(const Tensor& ids, const Tensor& x, const data::AugmentedImages& images) const;

 private:
  Storage codes_, numbers_;  // numbers_: undefined for ids and fp32 values
  int64_t stride_, code_bytes_, tables_;
};

// Copies `data` to the current device if `choice` (device.resident_data) says so; returns nullptr if it stays on the
// host. Appends a line about this to `notes`, in which `name` is the section. transformed: the host transforms the
// samples. Throws Error if the data must reside on the device but cannot.
std::unique_ptr<ResidentData> place_data(const std::string& choice, const std::string& name, const Dataset& data,
                                         std::string& notes, bool transformed = false);

class BatchFeed {
 public:
  // Uses the learner's device, which must be current here and in next(). Replaces the learner's `host_overlap` for its
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
