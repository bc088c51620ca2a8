#include "bitgrad/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/rng.h"

namespace bitgrad {
namespace {

// Epochs are a 32-bit word of the random counter.
constexpr int64_t kMostEpochs = int64_t{std::numeric_limits<uint32_t>::max()} + 1;
constexpr int64_t kMostMicro = int64_t{1} << 31;
constexpr int kMostPrefetch = 1024;

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

LoaderOptions checked(const Dataset& dataset, LoaderOptions options) {
  const int64_t n = dataset.size();
  require(n >= 1, "data.loader", "samples in ", dataset.name(), ": got ", n, ", expected 1 or more.");
  require(dataset.features() >= 1, "data.loader", "numbers in a sample of ", dataset.name(), ": got ",
          dataset.features(), ", expected 1 or more.");
  require(options.micro >= 1 && options.micro <= kMostMicro, "data.loader", "micro: got ", options.micro,
          ", expected 1 .. ", kMostMicro, ".");
  require(options.prefetch >= 0 && options.prefetch <= kMostPrefetch, "data.loader", "prefetch: got ", options.prefetch,
          ", expected 0 .. ", kMostPrefetch, ".");
  require(options.position >= 0 && options.position <= n, "data.loader", "position: got ", options.position,
          ", expected 0 .. ", n, ", the number of samples. Was the run started on another data set?");
  if (options.position == n) {
    options.position = 0;
    ++options.epoch;
  }
  require(options.epoch >= 0 && options.epoch < kMostEpochs, "data.loader", "epoch: got ", options.epoch,
          ", expected 0 .. ", kMostEpochs - 1, ".");
  require(options.end_epoch >= -1 && options.end_epoch <= kMostEpochs, "data.loader", "end_epoch: got ",
          options.end_epoch, ", expected -1 .. ", kMostEpochs, ".");
  if (options.end_epoch == -1) options.end_epoch = kMostEpochs;
  require(options.samples || dataset.stored().labels != nullptr, "data.loader", dataset.name(),
          ": labels without samples were asked for, but this data set does not tell how it is stored.");
  options.micro = std::min(options.micro, n);
  return options;
}

// Where a stream of batches is; steps from batch to batch.
struct Cursor {
  int64_t epoch;
  int64_t position;
  void advance(int64_t samples, int64_t n) {
    position += samples;
    if (position == n) {
      position = 0;
      ++epoch;
    }
  }
};

// Makes batch after batch into buffers it is handed.
class BatchMaker {
 public:
  BatchMaker(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(dataset),
        options_(options),
        n_(dataset.size()),
        features_(options.samples ? dataset.features() : 0),
        labels_(options.samples ? nullptr : dataset.stored().labels),
        classes_(dataset.classes()),
        dtype_(dataset.dtype()),
        cursor_{options.epoch, options.position} {}

  // False when end_epoch is reached.
  bool make(Batch& batch) {
    if (cursor_.epoch >= options_.end_epoch) return false;
    prepare_order();
    const int64_t size = std::min(options_.micro, n_ - cursor_.position);
    batch.resize(size, features_, dtype_);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t id = order_[static_cast<size_t>(cursor_.position + i)];
      batch.ids[i] = id;
      if (labels_ != nullptr)
        batch.labels[i] = labels_[id];
      else if (batch.tokens != nullptr)
        dataset_.sample_ids(id, batch.tokens + i * features_, batch.labels + i);
      else
        dataset_.sample(id, batch.x + i * features_, batch.labels + i);
      check_label(id, batch.labels[i]);
    }
    batch.epoch = cursor_.epoch;
    batch.position = cursor_.position;
    batch.last_of_epoch = cursor_.position + size == n_;
    cursor_.advance(size, n_);
    return true;
  }

 private:
  void prepare_order() {
    if (order_epoch_ == cursor_.epoch || (order_epoch_ >= 0 && !options_.shuffle)) return;
    order_.resize(static_cast<size_t>(n_));
    if (options_.shuffle) {
      shuffled_order(options_.seed, cursor_.epoch, n_, order_.data());
    } else {
      std::iota(order_.begin(), order_.end(), int64_t{0});
    }
    order_epoch_ = cursor_.epoch;
  }
  void check_label(int64_t id, int32_t label) const {
    if (label >= 0 && label < classes_) return;
    fail_with(ErrorCode::kData, "data.loader", dataset_.name(), ": label of sample ", id, ": got ", label,
              ", expected 0 .. ", classes_ - 1, ".");
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  const int64_t n_;
  const int64_t features_;
  const uint8_t* const labels_;  // nullptr: with the samples
  const int64_t classes_;
  const DType dtype_;
  Cursor cursor_;
  std::vector<int64_t> order_;
  int64_t order_epoch_ = -1;
};

}  // namespace

void copy_batch(const Batch& batch, Tensor& into) {
  const Shape shape{batch.size, batch.features};
  if (!into.defined() || into.shape() != shape || into.dtype() != batch.dtype || into.device() != current_device())
    into = Tensor::empty(shape, batch.dtype, MemoryKind::kBatch);
  const void* from = batch.tokens != nullptr ? static_cast<const void*>(batch.tokens) : batch.x;
  if (into.numel() > 0) device_backend(current_device()).copy_from_host(into.data(), from, into.bytes());
}

void Batch::swap(Batch& other) noexcept {
  std::swap(x, other.x);
  std::swap(tokens, other.tokens);
  std::swap(dtype, other.dtype);
  std::swap(labels, other.labels);
  std::swap(ids, other.ids);
  std::swap(size, other.size);
  std::swap(features, other.features);
  std::swap(epoch, other.epoch);
  std::swap(position, other.position);
  std::swap(last_of_epoch, other.last_of_epoch);
  memory_.swap(other.memory_);
}

void Batch::resize(int64_t samples, int64_t numbers, DType of) {
  require(of == dtypes::fp32 || of == dtypes::int32, "data.batch", "dtype: got ", of, ", expected fp32 or int32.");
  require(samples >= 0 && numbers >= 0 && (numbers == 0 || samples <= (int64_t{1} << 58) / numbers), "data.batch",
          "size: got ", samples, " x ", numbers, ", expected a product of at most 2^58.");
  const int64_t x_bytes = aligned(samples * numbers * int64_t{sizeof(float)});
  const int64_t id_bytes = aligned(samples * int64_t{sizeof(int64_t)});
  const int64_t needed = x_bytes + id_bytes + aligned(samples * int64_t{sizeof(int32_t)});
  if (needed > memory_.size()) {
    // The old room goes first, so that both never live at once.
    x = nullptr;
    tokens = nullptr;
    ids = nullptr;
    labels = nullptr;
    size = 0;
    memory_ = TrackedBytes();
    memory_ = TrackedBytes(needed, MemoryKind::kBatch);
  }
  x = of == dtypes::fp32 ? reinterpret_cast<float*>(memory_.data()) : nullptr;
  tokens = of == dtypes::int32 ? reinterpret_cast<int32_t*>(memory_.data()) : nullptr;
  ids = reinterpret_cast<int64_t*>(memory_.data() + x_bytes);
  labels = reinterpret_cast<int32_t*>(memory_.data() + x_bytes + id_bytes);
  size = samples;
  features = numbers;
  dtype = of;
}

void shuffled_order(uint64_t seed, int64_t epoch, int64_t n, int64_t* order) {
  require(epoch >= 0 && epoch < kMostEpochs, "data.loader", "epoch: got ", epoch, ", expected 0 .. ", kMostEpochs - 1,
          ".");
  const RandomStream stream{seed, Purpose::kShuffle, site_id("data.train"), static_cast<uint32_t>(epoch)};
  std::iota(order, order + n, int64_t{0});
  for (int64_t i = n - 1; i >= 1; --i) {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(stream.bits64(static_cast<uint64_t>(i))) * static_cast<uint64_t>(i + 1);
    std::swap(order[i], order[static_cast<int64_t>(product >> 64)]);
  }
}

// A ring of `prefetch` batches. The thread fills free slots; next() swaps the oldest full one with the caller's batch,
// whose old buffer is then the free slot's.
class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options)
      : options_(options),
        n_(dataset.size()),
        next_{options.epoch, options.position},
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
    if (!take(batch)) return false;
    next_.advance(batch.size, n_);
    return true;
  }

  const Cursor& cursor() const { return next_; }
  int64_t batches_per_epoch() const { return (n_ + options_.micro - 1) / options_.micro; }

 private:
  // The batches are the same without.
  void read_ahead() {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      slots_.clear();
      log(LogLevel::kWarning, concat("no thread to read batches ahead (", error.what(),
                                     "): each is read when the step before it has ended"));
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

  // Into a spare buffer, so that `batch` stays whole when the data set throws, as it does with a thread.
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
      Batch& slot = slots_[(head_ + count_) % slots_.size()];  // next() touches full slots only
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
  const int64_t n_;
  Cursor next_;
  BatchMaker maker_;  // of the thread while there is one
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
int64_t Loader::epoch() const { return impl_->cursor().epoch; }
int64_t Loader::position() const { return impl_->cursor().position; }
int64_t Loader::batches_per_epoch() const { return impl_->batches_per_epoch(); }

}  // namespace bitgrad
