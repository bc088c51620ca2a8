#include "bitgrad/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/rng.h"
#include "data/augment.h"
#include "data/image_dataset.h"

namespace bitgrad {
namespace {

// The epoch is a 32-bit word of the random counter.
constexpr int64_t kMostEpochs = int64_t{std::numeric_limits<uint32_t>::max()} + 1;
constexpr int64_t kMostMicro = int64_t{1} << 31;
constexpr int kMostPrefetch = 1024;

int64_t epoch_samples(const Dataset& dataset, const LoaderOptions& options) {
  return options.shuffle ? dataset.epoch_order().samples : dataset.size();
}

LoaderOptions checked(const Dataset& dataset, LoaderOptions options) {
  const int64_t n = dataset.size();
  const int64_t n_of_epoch = epoch_samples(dataset, options);
  require(n >= 1 && n_of_epoch >= 1, "data.loader", "samples in ", dataset.name(), ": got ", n,
          ", expected 1 or more.");
  require(dataset.features() >= 1, "data.loader", "values in a sample of ", dataset.name(), ": got ",
          dataset.features(), ", expected 1 or more.");
  require(options.micro >= 1 && options.micro <= kMostMicro, "data.loader", "micro: got ", options.micro,
          ", expected 1 .. ", kMostMicro, ".");
  require(options.prefetch >= 0 && options.prefetch <= kMostPrefetch, "data.loader", "prefetch: got ", options.prefetch,
          ", expected 0 .. ", kMostPrefetch, ".");
  require(options.position >= 0 && options.position <= n_of_epoch, "data.loader", "position: got ", options.position,
          ", expected 0 .. ", n_of_epoch, ", the number of samples. Was the run started on another data set?");
  if (options.position >= epoch_batches(n_of_epoch, options.micro, options.last).samples) {
    options.position = 0;
    ++options.epoch;
  }
  require(options.epoch >= 0 && options.epoch < kMostEpochs, "data.loader", "epoch: got ", options.epoch,
          ", expected 0 .. ", kMostEpochs - 1, ".");
  require(options.end_epoch >= -1 && options.end_epoch <= kMostEpochs, "data.loader", "end_epoch: got ",
          options.end_epoch, ", expected -1 .. ", kMostEpochs, ".");
  if (options.end_epoch == -1) options.end_epoch = kMostEpochs;
  require(options.samples || dataset.stored().labels != nullptr, "data.loader", dataset.name(),
          ": labels without samples were requested, but this data set does not report how it is stored.");
  require(options.transforms.empty() || (options.samples && dataset.dtype() == dtypes::fp32), "data.loader",
          dataset.name(),
          options.samples ? ": transforms need values, its samples are ids."
                          : ": transforms were requested without samples.");
  if (options.augment.given()) {
    require(options.samples, "data.loader", dataset.name(), ": augment was requested without samples.");
    data::augmented_images(dataset, options.augment, options.seed, 0);
  }
  const LoaderShare& share = options.share;
  require(share.size >= 1 && share.rank >= 0 && share.rank < share.size && share.window >= share.size &&
              share.window % share.size == 0 && share.batches >= -1,
          "data.loader", "share: got rank ", share.rank, " of ", share.size, ", windows of ", share.window, " of ",
          share.batches, " batches, expected a rank below the size, and windows of a multiple of it.");
  options.micro = std::min(options.micro, n_of_epoch);
  return options;
}

// Steps through the batches of all ranks, and stops at those of one.
class Walk {
 public:
  Walk(const LoaderOptions& options, int64_t samples)  // of an epoch, that are read
      : o_(options),
        samples_(samples),
        first_(options.share.window * options.share.rank / options.share.size),
        last_(options.share.window * (options.share.rank + 1) / options.share.size),
        epoch_(options.epoch),
        position_(options.position) {}

  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }
  int64_t left() const { return samples_ - position_; }
  int64_t size() const {
    const bool joined = o_.last == LastBatch::kJoin && left() < 2 * o_.micro;
    return joined ? left() : std::min(o_.micro, left());
  }
  // Goes to the next batch of this rank, if the one here is not; without one, to the end. Returns whether there is one.
  bool seek() {
    while (!ended() && !own()) step();
    return !ended();
  }
  // Goes past the batch, and past the end of the window if it was the last one of this rank there.
  void pass() {
    step();
    while (!ended() && passed_ % o_.share.window >= last_) step();
  }

 private:
  bool ended() const { return passed_ == o_.share.batches || epoch_ >= o_.end_epoch; }
  bool own() const {
    const int64_t at = passed_ % o_.share.window;
    return at >= first_ && at < last_;
  }
  void step() {
    position_ += size();
    ++passed_;
    if (position_ < samples_) return;
    position_ = 0;
    ++epoch_;
  }

  const LoaderOptions o_;
  const int64_t samples_, first_, last_;
  int64_t epoch_, position_, passed_ = 0;
};

// Fills the buffers it is given with consecutive batches.
class BatchMaker {
 public:
  BatchMaker(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(dataset),
        options_(options),
        n_(epoch_samples(dataset, options)),
        kind_(options.shuffle ? dataset.epoch_order().kind : EpochOrder::Kind::kSequential),
        sample_(options.samples ? Shape(dataset.sample_shape()) : Shape{0}),
        form_(dataset.target_form()),
        stored_(options.samples && !options.augment.given() ? StoredSamples{} : dataset.stored()),
        dtype_(dataset.dtype()),
        walk_(options, epoch_batches(n_, options.micro, options.last).samples) {}

  // Returns false at the end.
  bool make(Batch& batch) {
    if (!walk_.seek()) return false;
    prepare_epoch();
    const int64_t size = walk_.size();
    batch.resize(size, sample_, dtype_, form_);
    batch.counted = size * form_.shape.numel();
    for (int64_t i = 0; i < size; ++i) {
      batch.ids[i] = sample_at(walk_.position() + i);
      make_example(batch, i);
    }
    batch.epoch = walk_.epoch();
    batch.position = walk_.position();
    batch.last_of_epoch = size == walk_.left();
    walk_.pass();
    return true;
  }

 private:
  int64_t sample_at(int64_t position) const {
    if (kind_ == EpochOrder::Kind::kSequential) return position;
    if (kind_ == EpochOrder::Kind::kRandom)
      return drawn_sample(options_.seed, walk_.epoch(), position, dataset_.size());
    return order_[static_cast<size_t>(position)];
  }
  void prepare_epoch() {
    if (options_.augment.given() && (!images_ || images_epoch_ != walk_.epoch())) {
      images_ = data::augmented_images(dataset_, options_.augment, options_.seed, walk_.epoch());
      images_epoch_ = walk_.epoch();
    }
    if (kind_ != EpochOrder::Kind::kShuffled || order_epoch_ == walk_.epoch()) return;
    order_.resize(static_cast<size_t>(n_));
    shuffled_order(options_.seed, walk_.epoch(), n_, order_.data());
    order_epoch_ = walk_.epoch();
  }

  // Writes example i of the batch.
  void make_example(Batch& batch, int64_t i) const {
    const int64_t id = batch.ids[i], count = form_.shape.numel(), at = i * batch.features;
    void* const target =
        batch.labels != nullptr ? static_cast<void*>(batch.labels + i * count) : batch.values + i * count;
    if (stored_.codes != nullptr) data::copy_stored_target(stored_, id, count, target);
    if (options_.augment.given())
      data::write_augmented(*images_, stored_, id, batch.x + at);
    else if (options_.samples)
      dataset_.example(id, batch.tokens != nullptr ? static_cast<void*>(batch.tokens + at) : batch.x + at, target);
    for (size_t t = 0; t < options_.transforms.size(); ++t)
      options_.transforms[t]->apply(transform_stream(options_.seed, walk_.epoch(), static_cast<int64_t>(t)), id,
                                    sample_, batch.x + at);
    if (batch.labels != nullptr) check_classes(batch, id, batch.labels + i * count, count);
  }

  void check_classes(Batch& batch, int64_t id, const int32_t* classes, int64_t count) const {
    const bool positions = form_.shape.rank() > 0;
    for (int64_t p = 0; p < count; ++p) {
      if (classes[p] >= 0 && classes[p] < form_.classes) continue;
      const bool ignored = positions && classes[p] == kIgnoredClass;
      if (!ignored)
        fail_with(ErrorCode::kData, "data.loader", dataset_.name(), ": label of sample ", id,
                  positions ? concat(" at position ", p) : std::string(), ": got ", classes[p], ", expected 0 .. ",
                  form_.classes - 1, ".");
      --batch.counted;
    }
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  const int64_t n_;  // samples per epoch
  const EpochOrder::Kind kind_;
  const Shape sample_;
  const TargetForm form_;
  const StoredSamples stored_;  // only if targets are read without samples, or samples are augmented
  const DType dtype_;
  Walk walk_;
  std::vector<int64_t> order_;
  int64_t order_epoch_ = -1;
  std::optional<data::AugmentedImages> images_;  // for images_epoch_
  int64_t images_epoch_ = -1;
};

RandomStream epoch_stream(Purpose purpose, uint64_t seed, int64_t epoch) {
  require(epoch >= 0 && epoch < kMostEpochs, "data.loader", "epoch: got ", epoch, ", expected 0 .. ", kMostEpochs - 1,
          ".");
  return {seed, purpose, site_id("data.train"), static_cast<uint32_t>(epoch)};
}

// An index 0 .. n-1 from 64 random bits.
int64_t drawn_below(const RandomStream& stream, int64_t i, int64_t n) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(stream.bits64(static_cast<uint64_t>(i))) * static_cast<uint64_t>(n);
  return static_cast<int64_t>(product >> 64);
}

}  // namespace

EpochBatches epoch_batches(int64_t samples, int64_t micro, LastBatch last) {
  const int64_t full = samples / micro, rest = samples % micro;
  if (full == 0) return {1, samples, samples, samples};
  if (rest == 0 || last == LastBatch::kDrop) return {full, samples - rest, micro, micro};
  if (last == LastBatch::kJoin) return {full, samples, micro + rest, full > 1 ? micro : micro + rest};
  return {full + 1, samples, micro, rest};
}

void shuffled_order(uint64_t seed, int64_t epoch, int64_t n, int64_t* order) {
  const RandomStream stream = epoch_stream(Purpose::kShuffle, seed, epoch);
  std::iota(order, order + n, int64_t{0});
  for (int64_t i = n - 1; i >= 1; --i) std::swap(order[i], order[drawn_below(stream, i, i + 1)]);
}

int64_t drawn_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t n) {
  return drawn_below(epoch_stream(Purpose::kSample, seed, epoch), position, n);
}

// A ring of `prefetch` batches. The thread fills free slots; next() swaps the oldest full one with the caller's batch,
// whose old buffer then becomes the free slot.
class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options)
      : options_(options),
        next_(options, epoch_batches(epoch_samples(dataset, options), options.micro, options.last).samples),
        maker_(dataset, options),
        slots_(static_cast<size_t>(options.prefetch)) {
    if (options.prefetch > 0) read_ahead();
  }

  ~Impl() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    free_.notify_one();
    thread_.join();
  }

  bool next(Batch& batch) {
    const bool more = take(batch);
    next_.seek();
    if (more) next_.pass();
    return more;
  }

  const Walk& walk() const { return next_; }

 private:
  // Batches are the same if the thread cannot be started.
  void read_ahead() {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      slots_.clear();
      log(LogLevel::kWarning,
          concat("no thread to prefetch batches (", error.what(), "): each is read after the previous step has ended"));
    }
  }

  bool take(Batch& batch) {
    if (slots_.empty()) return take_here(batch);
    std::unique_lock<std::mutex> lock(mutex_);
    full_.wait(lock, [this] { return count_ > 0 || ended_; });
    if (count_ == 0) {
      if (error_ != nullptr) std::rethrow_exception(error_);
      return false;
    }
    batch.swap(slots_[head_]);
    head_ = (head_ + 1) % slots_.size();
    --count_;
    lock.unlock();
    free_.notify_one();
    return true;
  }

  // Uses a spare buffer, so that `batch` stays intact if the data set throws, as with a thread.
  bool take_here(Batch& batch) {
    if (error_ != nullptr) std::rethrow_exception(error_);
    try {
      if (!maker_.make(spare_)) return false;
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
    batch.swap(spare_);
    return true;
  }

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      free_.wait(lock, [this] { return stop_ || count_ < slots_.size(); });
      if (stop_) return;
      Batch& slot = slots_[(head_ + count_) % slots_.size()];  // next() only touches full slots
      lock.unlock();
      bool made = false;
      std::exception_ptr error;
      try {
        made = maker_.make(slot);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (made) {
        ++count_;
      } else {
        error_ = error;
        ended_ = true;
      }
      full_.notify_one();
      if (!made) return;
    }
  }

  const LoaderOptions options_;
  Walk next_;
  BatchMaker maker_;  // used only by the thread while it runs
  Batch spare_;
  std::mutex mutex_;
  std::condition_variable full_;
  std::condition_variable free_;
  std::vector<Batch> slots_;
  size_t head_ = 0;
  size_t count_ = 0;
  bool ended_ = false;
  bool stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, checked(dataset, options))) {}
Loader::~Loader() = default;
bool Loader::next(Batch& batch) { return impl_->next(batch); }
int64_t Loader::epoch() const { return impl_->walk().epoch(); }
int64_t Loader::position() const { return impl_->walk().position(); }

}  // namespace bitgrad
