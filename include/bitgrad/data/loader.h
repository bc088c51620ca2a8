// Batches of a data set in an order that is a pure function of (seed, epoch, position), prefetched on a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/transform.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Examples `position` .. `position + size - 1` of an epoch's order. Owns its memory, which is on the CPU (account:
// batch). Move-only.
struct Batch {
  float* x = nullptr;         // [size, features] fp32
  int32_t* tokens = nullptr;  // [size, features] int32, instead of x if samples are ids
  int32_t* labels = nullptr;  // [size, target...] classes
  float* values = nullptr;    // [size, target...] fp32, instead of labels if targets are values
  int64_t* ids = nullptr;     // [size] index of each sample in the data set; not token ids
  DType dtype = dtypes::fp32;
  int64_t size = 0;
  int64_t features = 0;  // elements per sample: the product of its shape
  Shape sample, target;  // shapes of one example
  int64_t counted = 0;   // elements of the targets, excluding ignored classes
  int64_t epoch = 0;
  int64_t position = 0;
  bool last_of_epoch = false;

  Batch() = default;
  Batch(Batch&& other) noexcept { swap(other); }
  Batch& operator=(Batch&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(Batch& other) noexcept;
  // Reserves space for `samples` samples of this shape and dtype (fp32 or int32) and their targets, and sets size,
  // features and dtype. Reallocates only if the space is too small; the contents are then lost.
  void resize(int64_t samples, const Shape& sample, DType dtype, const TargetForm& target);
  // Views of the contents, without a copy: [size, features] and [size, target...]. Valid until the batch is refilled.
  Tensor x_tensor() const;
  Tensor target_tensor() const;

 private:
  Tensor samples_, targets_;  // storage, [elements, 1]
  TrackedBytes ids_;
};
// Copies the values (fp32) or ids (int32) of a batch to `into`, a tensor [size, features] on the current device. Reuses
// the memory of `into` if its shape, dtype and device match.
void copy_batch(const Batch& batch, Tensor& into);
// Copies the targets of a batch in the same way, [size, target...].
void copy_targets(const Batch& batch, Tensor& into);

// The batches of one rank of several, of which each reads a part: a window of `window` batches in sequence is read by
// `size` ranks, batches window * rank / size .. window * (rank + 1) / size - 1 of it by this one. Windows begin where
// the loader does.
struct LoaderShare {
  int64_t rank = 0, size = 1, window = 1;
  int64_t batches = -1;  // of all ranks until the end, where a window may be incomplete; -1: as many as there are
};

struct LoaderOptions {
  int64_t micro = 1;  // samples per batch
  LastBatch last = LastBatch::kKeep;
  bool shuffle = true;  // use the data set's order (Dataset::epoch_order); false: samples 0 .. n-1 in every epoch
  uint64_t seed = 0;    // seed of the shuffle
  int64_t epoch = 0;    // where to start; position n means position 0 of the next epoch
  int64_t position = 0;
  int64_t end_epoch = -1;  // the first epoch that is not read; -1 means endless
  int prefetch = 2;        // batches prepared in advance on a thread; 0: prepared inside next()
  bool samples = true;     // false: only targets and ids, with features 0; requires Dataset::stored
  std::vector<std::shared_ptr<const Transform>> transforms = {};  // for fp32 samples, in order; drawn by `seed`
  Augment augment = {};  // for byte images, before the transforms; drawn by `seed`
  LoaderShare share = {};
};

// Writes the order of `epoch` to order[0 .. n): a Fisher-Yates shuffle that, for i = n-1 .. 1, swaps i with the high 64
// bits of r64(i) * (i+1); stream {seed, Purpose::kShuffle, site_id("data.train"), step = epoch} (docs/numerics.md
// section 7).
void shuffled_order(uint64_t seed, int64_t epoch, int64_t n, int64_t* order);

// The sample at `position` of an epoch of draws with replacement from n samples: the high 64 bits of r64(position) * n;
// stream {seed, Purpose::kSample, site_id("data.train"), step = epoch}.
int64_t drawn_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t n);

// Reads batches in sequence. Not thread-safe: use from one thread. The data set must outlive the loader.
class Loader {
 public:
  // Throws Error for an empty data set or options out of range.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Stores the next batch in `batch` and reuses its old buffers, so nothing is allocated after the first prefetch + 1
  // calls with the same Batch. Returns false and leaves `batch` unchanged once end_epoch, or the end of the share, is
  // reached. An exception from
  // the data set is rethrown by the call for the affected batch and by every later call. Throws Error(kData) for a
  // class out of range.
  bool next(Batch& batch);
  // Start of the batch that next() returns next; after the last one of this rank in a window, the start of the next
  // window, as on all ranks. Stored in checkpoints.
  int64_t epoch() const;
  int64_t position() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bitgrad
