// Ranks that are threads: each lays down where its values lie, reads those of all others, and makes the whole tree.
#include <condition_variable>
#include <mutex>

#include "bitgrad/dist/communicator.h"
#include "bitgrad/dist/tree_sum.h"
#include "dist/add.h"

namespace bitgrad {
namespace {

class Meeting {
 public:
  explicit Meeting(int64_t size) : parts_(static_cast<size_t>(size)) {}

  // Waits until all ranks are here with what they give; it stays until leave().
  const std::vector<const void*>& meet(int64_t rank, const void* part) {
    parts_[static_cast<size_t>(rank)] = part;
    wait_for_all();
    return parts_;
  }
  // Waits until no rank reads the others' parts any more.
  void leave() { wait_for_all(); }

  void cancel(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "no reason was given" : reason;
    arrived_.notify_all();
  }

 private:
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    check();
    const int64_t round = round_;
    if (++here_ == std::ssize(parts_)) {
      here_ = 0;
      ++round_;
      arrived_.notify_all();
      return;
    }
    arrived_.wait(lock, [&] { return round_ != round || !reason_.empty(); });
    if (round_ == round) check();
  }
  void check() const {
    if (!reason_.empty()) fail_with(ErrorCode::kDevice, "ranks", "another rank ended: ", reason_);
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<const void*> parts_;
  int64_t here_ = 0, round_ = 0;
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
    const std::vector<const void*>& parts = meeting_->meet(rank_, &values);
    const auto join = [](Tensor left, Tensor right) {
      detail::add_left(left, right);
      return right;
    };
    TreeSum<Tensor, decltype(join)> tree(join);
    std::string differs;
    for (const void* part : parts) {
      const Tensor& from = *static_cast<const Tensor*>(part);
      if (from.shape() != values.shape() || from.dtype() != values.dtype()) {
        differs = concat("sum: rank ", rank_, " has ", values, ", another rank ", from);
        break;
      }
      Tensor term = Tensor::empty(from.shape(), from.dtype(), MemoryKind::kWorkspace);
      term.copy_from(from);
      tree.add(std::move(term));
    }
    if (!differs.empty()) {
      meeting_->cancel(differs);
      fail_with(ErrorCode::kDevice, "ranks", differs);
    }
    const Tensor total = tree.finish();
    meeting_->leave();
    values.copy_from(total);
  }

  void sum(std::span<int64_t> counts) override {
    const std::vector<const void*>& parts = meeting_->meet(rank_, &counts);
    std::vector<int64_t> total(counts.size());
    for (const void* part : parts) {
      const auto& from = *static_cast<const std::span<int64_t>*>(part);
      ensure(from.size() == total.size(), "ranks", "counts of several lengths");
      for (size_t i = 0; i < total.size(); ++i) total[i] += from[i];
    }
    meeting_->leave();
    std::copy(total.begin(), total.end(), counts.begin());
  }

  void cancel(const std::string& reason) override { meeting_->cancel(concat("rank ", rank_, ": ", reason)); }

 private:
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
