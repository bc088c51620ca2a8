// Ranks that are threads: each publishes the addresses of its parts, and the others copy from there.
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "bitgrad/base/text.h"
#include "bitgrad/dist/communicator.h"
#include "dist/host.h"
#include "dist/parts.h"

namespace bitgrad {
namespace {

using Bytes = Communicator::Bytes;
using ConstBytes = Communicator::ConstBytes;

// What one rank brings to a call: a part for each rank, and the places of those from each rank.
struct Side {
  std::vector<ConstBytes> to = {};
  std::vector<Bytes> from = {};
  bool copied = false;  // all of `from` is there
};

// One call of all ranks; ends when every rank has copied what it gets.
struct Call {
  std::string_view kind = {};
  std::vector<std::optional<Side>> sides = {};  // by rank, once it has arrived
  int64_t arrived = 0, copied = 0, left = 0;    // ranks
};

// What the ranks share.
struct Meeting {
  explicit Meeting(int64_t ranks) : size(ranks) {}

  // The members below are guarded by it.
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Call> calls;  // by number
  int64_t copying = 0;            // threads that copy outside the lock
  std::optional<Error> cancelled;
  const int64_t size;
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(std::shared_ptr<Meeting> meeting, int64_t rank, std::chrono::milliseconds timeout)
      : m_(std::move(meeting)), rank_(rank), timeout_(timeout) {}
  ThreadRank(const ThreadRank&) = delete;
  ThreadRank& operator=(const ThreadRank&) = delete;
  ~ThreadRank() override {
    if (outstanding_.empty()) return;
    std::unique_lock lock(m_->mutex);
    cancel_with(lock, Error(concat("[ranks] rank ", rank_, " left before a transfer had ended"), ErrorCode::kDevice));
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return m_->size; }
  RankInfo info() const override {
    return {.engine = "threads", .host = detail::host_name(), .local_rank = rank_, .local_size = m_->size};
  }

  std::chrono::milliseconds timeout() const override { return timeout_; }

  Transfer exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    detail::check_exchange(to.size(), from.size(), size());
    return start("exchange", {{to.begin(), to.end()}, {from.begin(), from.end()}});
  }
  Transfer gather(ConstBytes own, std::span<const Bytes> all) override {
    detail::check_gather(all.size(), size());
    return start("gather", {std::vector(all.size(), own), {all.begin(), all.end()}});
  }

  bool done(Transfer transfer) override {
    std::unique_lock lock(m_->mutex);
    return ended(lock, static_cast<int64_t>(transfer), /*waits=*/false);
  }
  void wait(Transfer transfer) override {
    const auto number = static_cast<int64_t>(transfer);
    std::unique_lock lock(m_->mutex);
    while (!ended(lock, number, /*waits=*/true)) m_->changed.wait_until(lock, *outstanding_.at(number));
  }
  void cancel(const Error& why) override {
    std::unique_lock lock(m_->mutex);
    cancel_with(lock, Error(concat("[ranks] rank ", rank_, " ended: ", why.what()), why.code()));
  }
  void check() override {
    std::unique_lock lock(m_->mutex);
    check(lock);
  }

 private:
  Transfer start(std::string_view kind, Side side) {
    std::unique_lock lock(m_->mutex);
    check(lock);
    const int64_t number = next_++;
    Call& call = m_->calls[number];
    if (call.sides.empty()) {
      call.sides.resize(static_cast<size_t>(size()));
      call.kind = kind;
    } else if (call.kind != kind) {
      fail_all(lock, concat("call ", number, ": rank ", rank_, " calls ", kind, ", another rank ", call.kind));
    }
    for (int64_t r = 0; r < size(); ++r)
      if (r != rank_) bytes_sent_ += std::ssize(side.to[static_cast<size_t>(r)]);
    call.sides[static_cast<size_t>(rank_)] = std::move(side);
    outstanding_[number] = std::nullopt;
    if (++call.arrived == size()) m_->changed.notify_all();
    return Transfer{number};
  }

  // Copies what has arrived. Every outstanding call is served, as another rank may wait for a later one first.
  void progress(std::unique_lock<std::mutex>& lock) {
    for (const auto& entry : outstanding_) {
      const int64_t number = entry.first;
      Call& call = m_->calls.at(number);  // stays: this rank has not left it
      Side& own = *call.sides[static_cast<size_t>(rank_)];
      if (own.copied || call.arrived < size()) continue;
      compare(lock, number, call);
      ++m_->copying;
      lock.unlock();
      for (size_t r = 0; r < call.sides.size(); ++r) {
        const ConstBytes from = call.sides[r]->to[static_cast<size_t>(rank_)];
        if (std::cmp_not_equal(r, rank_) && !from.empty()) std::memcpy(own.from[r].data(), from.data(), from.size());
      }
      lock.lock();
      --m_->copying;
      own.copied = true;
      ++call.copied;
      m_->changed.notify_all();
      check(lock);
    }
  }
  bool ended(std::unique_lock<std::mutex>& lock, int64_t number, bool waits) {
    require(number >= 0 && number < next_, "ranks", "no transfer ", number, " was started on rank ", rank_);
    const auto at = outstanding_.find(number);
    if (at == outstanding_.end()) return true;
    const auto call = m_->calls.find(number);
    if (call->second.copied < size()) {  // what all have copied has ended well, even if one of them ended since then
      check(lock);
      progress(lock);
    }
    if (call->second.copied < size()) {
      if (!waits) return false;
      const auto now = std::chrono::steady_clock::now();
      if (!at->second) at->second = now + timeout_;
      if (now >= *at->second) time_out(lock, number);
      return false;
    }
    outstanding_.erase(at);
    if (++call->second.left == size()) m_->calls.erase(call);
    return true;
  }

  // Parts must be as long as their places.
  void compare(std::unique_lock<std::mutex>& lock, int64_t number, const Call& call) {
    const Side& own = *call.sides[static_cast<size_t>(rank_)];
    for (size_t r = 0; r < call.sides.size(); ++r) {
      const size_t got = call.sides[r]->to[static_cast<size_t>(rank_)].size();
      if (std::cmp_not_equal(r, rank_) && got != own.from[r].size())
        fail_all(lock, concat(call.kind, ' ', number, ": rank ", r, " sends ", got, " bytes to rank ", rank_,
                              ", which expects ", own.from[r].size()));
    }
  }

  // Throws the error of all ranks, if there is one, when no thread copies any more: then memory may be freed.
  void check(std::unique_lock<std::mutex>& lock) {
    if (!m_->cancelled) return;
    m_->changed.wait(lock, [&] { return m_->copying == 0; });
    throw Error(*m_->cancelled);
  }
  // Sets it, unless another rank was first. Waits as check.
  void cancel_with(std::unique_lock<std::mutex>& lock, const Error& why) {
    if (!m_->cancelled) m_->cancelled = why;
    m_->changed.notify_all();
    m_->changed.wait(lock, [&] { return m_->copying == 0; });
  }
  [[noreturn]] void fail_all(std::unique_lock<std::mutex>& lock, const std::string& what) {
    cancel_with(lock, Error("[ranks] " + what, ErrorCode::kDevice));
    throw Error(*m_->cancelled);
  }
  [[noreturn]] void time_out(std::unique_lock<std::mutex>& lock, int64_t number) {
    const Call& call = m_->calls.at(number);
    std::vector<int64_t> silent;
    for (size_t r = 0; r < call.sides.size(); ++r)  // without a call, else without having copied
      if (call.arrived < size() ? !call.sides[r] : !call.sides[r]->copied) silent.push_back(static_cast<int64_t>(r));
    fail_all(lock, concat("no answer from rank ", joined(silent), " in ",
                          std::chrono::duration<double>(timeout_).count(), " s, in ", call.kind, ' ', number));
  }

  std::shared_ptr<Meeting> m_;
  int64_t rank_;
  std::chrono::milliseconds timeout_;
  int64_t next_ = 0;  // number of the next call
  // Calls that this rank has not left, with the time at which they count as lost, once it waits for them.
  std::map<int64_t, std::optional<std::chrono::steady_clock::time_point>> outstanding_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_thread_ranks(int64_t size, std::chrono::milliseconds timeout) {
  require(size > 0, "ranks", "got ", size, " ranks, expected at least 1");
  const auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int64_t rank = 0; rank < size; ++rank) ranks.push_back(std::make_shared<ThreadRank>(meeting, rank, timeout));
  return ranks;
}

}  // namespace bitgrad
