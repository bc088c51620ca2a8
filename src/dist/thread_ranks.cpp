// Ranks that are threads: each publishes the address of its values, reads those of all ranks, and sums the whole tree.
#include <condition_variable>
#include <mutex>
#include <utility>

#include "bitgrad/dist/communicator.h"
#include "dist/add.h"

namespace bitgrad {
namespace {

class Meeting {
 public:
  explicit Meeting(int64_t size) : parts_(static_cast<size_t>(size)) {}

  // The values of all ranks; the constructor waits until all have arrived. The destructor waits until all ranks have
  // finished reading, also when a rank throws, so that no rank destroys values that another one still reads.
  class Parts {
   public:
    Parts(Meeting& meeting, int64_t rank, const void* part) : meeting_(meeting) { meeting_.arrive(rank, part); }
    ~Parts() { meeting_.leave(); }
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;
    auto begin() const { return meeting_.parts_.begin(); }
    auto end() const { return meeting_.parts_.end(); }

   private:
    Meeting& meeting_;
  };

  void cancel(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "no reason given" : reason;
    changed_.notify_all();
  }

 private:
  void arrive(int64_t rank, const void* part) {
    std::unique_lock lock(mutex_);
    check();
    parts_[static_cast<size_t>(rank)] = part;
    const int64_t round = round_;
    if (++here_ == std::ssize(parts_)) {
      reading_ = std::exchange(here_, 0);
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round || !reason_.empty(); });
    if (round_ == round) check();
  }
  void leave() {
    std::unique_lock lock(mutex_);
    if (--reading_ == 0) changed_.notify_all();
    const int64_t round = round_;
    changed_.wait(lock, [&] { return reading_ == 0 || round_ != round; });
  }
  void check() const {
    if (!reason_.empty()) fail_with(ErrorCode::kDevice, "ranks", "another rank ended: ", reason_);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void*> parts_;
  int64_t here_ = 0, reading_ = 0, round_ = 0;
  std::string reason_;
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(std::shared_ptr<Meeting> meeting, int64_t rank, int64_t size)
      : meeting_(std::move(meeting)), rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }

  void sum(const Tensor& values) override {
    require(values.dtype() == dtypes::fp32 || values.dtype() == dtypes::bf16, "ranks", "sum: got ", values.dtype(),
            ", expected fp32 or bf16");
    const Tensor total = total_of(values);
    values.copy_from(total);
  }

  void sum(std::span<int64_t> counts) override {
    std::vector<int64_t> total(counts.size());
    {
      const Meeting::Parts parts(*meeting_, rank_, &counts);
      for (const void* part : parts) {
        const auto& from = *static_cast<const std::span<int64_t>*>(part);
        ensure(from.size() == total.size(), "ranks", "counts of several lengths");
        for (size_t i = 0; i < total.size(); ++i) total[i] += from[i];
      }
    }
    std::copy(total.begin(), total.end(), counts.begin());
  }

  void cancel(const std::string& reason) override { meeting_->cancel(concat("rank ", rank_, ": ", reason)); }

 private:
  // Every rank computes the same sum over all ranks. If shapes or dtypes differ, every rank finds out and throws.
  Tensor total_of(const Tensor& values) {
    const Meeting::Parts parts(*meeting_, rank_, &values);
    const auto join = [](Tensor left, Tensor right) {
      detail::add_left(left, right);
      return right;
    };
    TreeSum<Tensor, decltype(join)> tree(join);
    for (const void* part : parts) {
      const Tensor& from = *static_cast<const Tensor*>(part);
      if (from.shape() != values.shape() || from.dtype() != values.dtype()) {
        const std::string differs = concat("sum: rank ", rank_, " has ", values, ", another rank ", from);
        meeting_->cancel(differs);
        fail_with(ErrorCode::kDevice, "ranks", differs);
      }
      Tensor term = Tensor::empty(from.shape(), from.dtype(), MemoryKind::kWorkspace);
      term.copy_from(from);
      tree.add(std::move(term));
    }
    return tree.finish();
  }

  std::shared_ptr<Meeting> meeting_;
  int64_t rank_, size_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_thread_ranks(int64_t size) {
  require(size > 0, "ranks", "got ", size, " ranks, expected at least 1");
  const auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int64_t rank = 0; rank < size; ++rank) ranks.push_back(std::make_shared<ThreadRank>(meeting, rank, size));
  return ranks;
}

}  // namespace bitgrad
