// Batches of a data set in an order that is a pure function of (seed, epoch, position), read ahead on a thread.
#pragma once

#include <cstdint>
#include <memory>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/transform.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Examples `position` .. `position + size - 1` of an epoch's order. Owns its memory (account: batch), which lies on the
// CPU; move-only.
struct Batch {
  float* x = nullptr;         // [size, features] of dtype fp32
  int32_t* tokens = nullptr;  // [size, features] of dtype int32: in place of x for a data set of ids
  int32_t* labels = nullptr;  // [size, target...] classes
  float* values = nullptr;    // [size, target...] fp32, in place of labels for targets that are values
  int64_t* ids = nullptr;     // [size] number of each sample in the data set; no token ids
  DType dtype = dtypes::fp32;
  int64_t size = 0;
  int64_t features = 0;  // of a sample: the product of its shape
  Shape sample, target;  // of one example
  int64_t counted = 0;   // elements of the targets, without classes that are ignored
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
  // Makes room for `samples` of a shape and dtype (fp32 or int32) with their targets, and sets size, features and
  // dtype. Allocates only when the room is too small, and forgets the content then.
  void resize(int64_t samples, const Shape& sample, DType dtype, const TargetForm& target);
  // What lies here, without a copy: [size, features], and [size, target...]; good until the batch is filled again.
  Tensor x_tensor() const;
  Tensor target_tensor() const;
  int64_t memory_bytes() const;

 private:
  Tensor samples_, targets_;  // room, [elements, 1]
  TrackedBytes ids_;
};
// The values (fp32) or ids (int32) of a batch as a tensor [size, features] of the current device, copied. What `into`
// is before is used again where shape, dtype and device fit.
void copy_batch(const Batch& batch, Tensor& into);
// The same for its targets, [size, target...].
void copy_targets(const Batch& batch, Tensor& into);

// Random changes of images of bytes, made before a byte becomes a value: a crop of the image with `crop_pad` pixels of
// byte 0 on each side, and its mirror image, left to right, in one of two cases (He et al. 2015, section 4.2). Drawn
// anew for each sample in each epoch, by its index in the data set (docs/numerics.md section 7).
struct Augment {
  int64_t crop_pad = 0;  // 0 .. 1024
  bool flip = false;
  bool given() const { return crop_pad != 0 || flip; }
  friend bool operator==(const Augment&, const Augment&) = default;
};

struct LoaderOptions {
  int64_t micro = 1;    // samples of a batch; the last one of an epoch may be smaller, and is never dropped
  bool shuffle = true;  // as the data set says (Dataset::epoch_order); false: samples 0 .. n-1 in every epoch
  uint64_t seed = 0;    // of the shuffle
  int64_t epoch = 0;    // where to start; position n is position 0 of the next epoch
  int64_t position = 0;
  int64_t end_epoch = -1;  // the first epoch that is not read; -1: never ends
  int prefetch = 2;        // batches made ahead on a thread; 0: made inside next()
  bool samples = true;     // false: targets and ids alone, with features 0; for a data set that tells how it is stored
  std::vector<std::shared_ptr<const Transform>> transforms = {};  // of samples of fp32, in order, drawn by `seed`
  Augment augment = {};  // of images of bytes, drawn by `seed`, before the transforms
};

// Writes the order of `epoch` to order[0 .. n): a Fisher-Yates shuffle for i = n-1 .. 1 that swaps i with the high 64
// bits of r64(i) * (i+1); stream {seed, Purpose::kShuffle, site_id("data.train"), step = epoch} (docs/numerics.md
// section 7).
void shuffled_order(uint64_t seed, int64_t epoch, int64_t n, int64_t* order);

// The sample at a position of an epoch whose samples are drawn from n: the high 64 bits of r64(position) * n; stream
// {seed, Purpose::kSample, site_id("data.train"), step = epoch}.
int64_t drawn_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t n);

// Reads batch after batch. One thread may call it; the data set must outlive it.
class Loader {
 public:
  // Throws Error for an empty data set or options out of range.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Gives the next batch and takes the old content of `batch` back for reuse, so that after the first prefetch + 1
  // calls with one Batch nothing is allocated. Returns false, and leaves `batch` alone, when end_epoch is reached. What
  // the data set throws comes out of the call for the batch that it concerns, and of every later one. Error(kData) for
  // a class out of range.
  bool next(Batch& batch);
  // Where the batch that next() gives next starts: what a checkpoint stores.
  int64_t epoch() const;
  int64_t position() const;
  // ceil(n / micro) for the n samples of an epoch: floor(n / micro) full batches, then a partial one if anything is
  // left.
  int64_t batches_per_epoch() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bitgrad
