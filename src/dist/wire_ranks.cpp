#include "dist/wire_ranks.h"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "dist/host.h"
#include "dist/parts.h"

namespace bitgrad::detail {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kShortest{20}, kLongest{200}, kIdle{1000};
constexpr int kPollsOfOneLength = 16;        // before the next, longer sleep
constexpr std::chrono::seconds kEndTime{5};  // in which ranks end after a failure
constexpr milliseconds kLastWords{200};      // for what the other ranks print: mpirun kills all once one has ended
constexpr std::chrono::seconds kGrace{3};    // for a thread that should have answered

// Signals are for the threads of the program.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_ = {};
};

class WireRank final : public Communicator {
 public:
  WireRank(WireThread& thread, int index, const WireOptions& options)
      : thread_(thread), options_(options), shared_(std::make_shared<WireShared>()) {
    thread_.post([&thread, index, options, shared = shared_, calls = calls_] {
      *calls = std::make_shared<WireCalls>(thread.messages(), index, options, shared);
      thread.add(*calls);
    });
  }
  WireRank(const WireRank&) = delete;
  WireRank& operator=(const WireRank&) = delete;
  ~WireRank() override {
    if (!outstanding_.empty())
      end_all(Error(concat("[ranks] rank ", rank(), " left before a transfer had ended"), ErrorCode::kDevice));
    thread_.post([&thread = thread_, calls = calls_] { thread.remove(*calls); });
  }

  int64_t rank() const override { return thread_.rank(); }
  int64_t size() const override { return thread_.size(); }
  RankInfo info() const override { return thread_.info(); }
  milliseconds timeout() const override { return options_.timeout; }

  Transfer exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    detail::check_exchange(to.size(), from.size(), size());
    return start(CallKind::kExchange, {to.begin(), to.end()}, from);
  }
  Transfer gather(ConstBytes own, std::span<const Bytes> all) override {
    detail::check_gather(all.size(), size());
    return start(CallKind::kGather, std::vector(all.size(), own), all);
  }
  bool done(Transfer transfer) override {
    std::unique_lock lock(shared_->mutex);
    return ended(lock, static_cast<int64_t>(transfer), /*waits=*/false);
  }
  void wait(Transfer transfer) override {
    const auto number = static_cast<int64_t>(transfer);
    std::unique_lock lock(shared_->mutex);
    while (!ended(lock, number, /*waits=*/true))
      shared_->changed.wait_until(lock, *outstanding_.at(number)->deadline + options_.drain + kGrace);
  }
  void cancel(const Error& why) override {
    end_all(Error(concat("[ranks] rank ", rank(), " ended: ", why.what()), why.code()));
  }
  // A rank that calls this again and again, and nothing else, waits for devices.
  void check() override {
    std::unique_lock lock(shared_->mutex);
    check(lock);
    shared_->devices_seen = Clock::now();
    if (!shared_->devices_since) shared_->devices_since = shared_->devices_seen;
  }

 private:
  Transfer start(CallKind kind, std::vector<ConstBytes> to, std::span<const Bytes> from) {
    {
      std::unique_lock lock(shared_->mutex);
      check(lock);
      shared_->devices_since.reset();
    }
    const auto call = std::make_shared<WireCall>();
    call->number = next_++;
    call->kind = kind;
    for (int64_t r = 0; r < size(); ++r)
      if (r != rank()) bytes_sent_ += std::ssize(to[static_cast<size_t>(r)]);
    call->to = std::move(to);
    call->from.assign(from.begin(), from.end());
    outstanding_[call->number] = call;
    thread_.post([call, calls = calls_] { (*calls)->start(call); });
    return Transfer{call->number};
  }
  bool ended(std::unique_lock<std::mutex>& lock, int64_t number, bool waits) {
    require(number >= 0 && number < next_, "ranks", "no transfer ", number, " was started on rank ", rank());
    check(lock);
    const auto at = outstanding_.find(number);
    if (at == outstanding_.end()) return true;
    WireCall& call = *at->second;
    if (!call.ended) {
      if (!waits) return false;
      const auto now = Clock::now();
      if (!call.deadline) call.deadline = now + options_.timeout;
      if (now < *call.deadline + options_.drain + kGrace) return false;
      // The thread of the wire sees the deadline first, unless a call of its library does not return.
      shared_->failure = Error(
          concat("[ranks] ", thread_.info().engine, " did not return in ",
                 std::chrono::duration<double>(options_.timeout).count(), " s, in ", name_of(call.kind), ' ', number),
          ErrorCode::kDevice);
      shared_->quiet = true;
      throw Error(*shared_->failure);
    }
    outstanding_.erase(at);
    return true;
  }
  // Throws the error of all ranks, if there is one, when nothing touches the memory of transfers any more.
  void check(std::unique_lock<std::mutex>& lock) {
    if (!shared_->failure) return;
    wait_until_quiet(lock);
    throw Error(*shared_->failure);
  }
  void wait_until_quiet(std::unique_lock<std::mutex>& lock) {
    shared_->changed.wait_for(lock, options_.drain + kGrace, [&] { return shared_->quiet; });
  }
  void end_all(const Error& why) {
    thread_.post([why, calls = calls_] { (*calls)->fail(why); });
    std::unique_lock lock(shared_->mutex);
    wait_until_quiet(lock);
  }

  WireThread& thread_;
  const WireOptions options_;
  std::shared_ptr<WireShared> shared_;
  // Made and used by the thread of the wire.
  std::shared_ptr<std::shared_ptr<WireCalls>> calls_ = std::make_shared<std::shared_ptr<WireCalls>>();
  int64_t next_ = 0;                                          // number of the next call
  std::map<int64_t, std::shared_ptr<WireCall>> outstanding_;  // calls that this rank has not waited for
};

}  // namespace

WireThread::WireThread(std::string engine, Open open, void (*end_process)(int), milliseconds timeout)
    : timeout_(timeout), end_process_(end_process), info_{.engine = std::move(engine), .host = host_name()} {
  const BlockedSignals blocked;
  thread_ = std::thread([this, open = std::move(open)] { run(open); });
}

void WireThread::wait_until_open() {
  std::unique_lock lock(mutex_);
  if (!state_changed_.wait_for(lock, timeout_, [&] { return opened_ || lost_; }))
    lost_ = Error(
        concat("[ranks] ", info_.engine, " did not start in ", std::chrono::duration<double>(timeout_).count(), " s"),
        ErrorCode::kDevice);
  if (lost_) throw Error(*lost_);
}

std::shared_ptr<Communicator> WireThread::communicator(const WireOptions& options) {
  const int index = next_index_++;
  {
    const std::lock_guard lock(mutex_);
    if (lost_) throw Error(*lost_);
    require(index <= (max_tag_ - 1) / 2, "ranks", "a process cannot make more than ", index, " communicators");
  }
  return std::make_shared<WireRank>(*this, index, options);
}

void WireThread::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  wake_.notify_one();
}

void WireThread::remove(const std::shared_ptr<WireCalls>& calls) {
  calls->leave();
  std::erase(all_, calls);
  removed_.push_back(calls);
}

void WireThread::close() {
  if (!thread_.joinable()) return;
  std::fflush(nullptr);  // the process may end below
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_one();
  }
  std::unique_lock lock(mutex_);
  const bool in_time = state_changed_.wait_for(lock, timeout_ + kEndTime, [&] { return closed_ || failure_code_; }) &&
                       state_changed_.wait_for(lock, 2 * kEndTime, [&] { return closed_; });
  const auto code = static_cast<int>(failure_code_.value_or(ErrorCode::kDevice));
  lock.unlock();
  if (in_time) return thread_.join();
  end_process_(code);
  thread_.detach();
}

void WireThread::run(const Open& open) {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; the default adds 50 us to every sleep
  try {
    messages_ = std::make_unique<WireMessages>(open());
    const Wire& wire = messages_->wire();
    const std::lock_guard lock(mutex_);
    rank_ = wire.rank();
    size_ = wire.size();
    max_tag_ = wire.max_tag();
    info_.local_rank = wire.local_rank();
    info_.local_size = wire.local_size();
    opened_ = true;
    state_changed_.notify_all();
  } catch (const std::exception& error) {
    lose(Error(concat("[ranks] ", info_.engine, ": ", error.what()), ErrorCode::kDevice));
  }
  try {
    if (messages_ != nullptr) serve();
    end_wire();
  } catch (const std::exception& error) {
    lose(Error(concat("[ranks] ", info_.engine, ": ", error.what()), ErrorCode::kDevice));
  }
}

void WireThread::serve() {
  microseconds sleep = kShortest;
  for (int idle = 0;;) {
    const bool ran = run_tasks(sleep);
    const bool moved = messages_->poll();
    idle = ran || moved ? 0 : idle + 1;
    const bool busy = look_at_calls();
    sleep = busy ? std::min(kLongest, kShortest * (1 << std::min(idle / kPollsOfOneLength, 8))) : kIdle;
    bool closing = false;
    {
      const std::lock_guard lock(mutex_);
      if (lost_) return;
      closing = closing_;
    }
    if (closing && may_close()) return;
  }
}

bool WireThread::run_tasks(microseconds most) {
  std::vector<std::function<void()>> tasks;
  {
    std::unique_lock lock(mutex_);
    if (tasks_.empty()) wake_.wait_for(lock, most);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
  return !tasks.empty();
}

// Whether a call is under way.
bool WireThread::look_at_calls() {
  bool busy = false;
  std::optional<Error> lost;
  const auto now = Clock::now();
  for (const auto* list : {&all_, &removed_})
    for (const auto& calls : *list) {
      calls->tick(now);
      busy = busy || calls->busy();
      if (!calls->failure()) continue;
      const std::lock_guard lock(mutex_);
      if (!failure_code_) failure_code_ = calls->failure()->code();
      if (calls->broken()) lost = calls->failure();
      hurried_ = hurried_ || calls->gone();
    }
  std::erase_if(removed_, [](const auto& calls) { return calls->finished(); });
  if (lost) lose(*lost);
  return busy;
}

// A rank cannot be reached any more: nothing is received from now on, so nothing writes to the memory of a transfer.
void WireThread::lose(const Error& why) {
  for (const auto* list : {&all_, &removed_})
    for (const auto& calls : *list) calls->lose(why);
  const std::lock_guard lock(mutex_);
  lost_ = why;
  if (!failure_code_) failure_code_ = why.code();
  state_changed_.notify_all();
}

// Whether all ranks have come to their end.
bool WireThread::may_close() {
  const auto now = Clock::now();
  if (!closing_since_) {
    closing_since_ = now;
    for (const auto& calls : all_) calls->leave();
  }
  const auto finished = [](const auto& calls) { return calls->finished(); };
  if (std::all_of(all_.begin(), all_.end(), finished) && std::all_of(removed_.begin(), removed_.end(), finished) &&
      messages_->wire().may_close())
    return true;
  if (now - *closing_since_ >= end_time())
    lose(Error(
        concat("[ranks] the other ranks did not end in ", std::chrono::duration<double>(end_time()).count(), " s"),
        ErrorCode::kDevice));
  return false;
}

milliseconds WireThread::end_time() {
  const std::lock_guard lock(mutex_);
  return failure_code_ ? milliseconds(kEndTime) : timeout_;
}

void WireThread::end_wire() {
  std::optional<int> code;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return closing_; });
    if (lost_) code = static_cast<int>(failure_code_.value_or(ErrorCode::kDevice));
  }
  if (messages_ != nullptr && code) {
    std::this_thread::sleep_for(kLastWords);
    if (hurried_)
      end_process_(*code);
    else
      messages_->wire().end_all(*code);
  } else if (messages_ != nullptr) {
    messages_->wire().close();
  }
  const std::lock_guard lock(mutex_);
  closed_ = true;
  state_changed_.notify_all();
}

}  // namespace bitgrad::detail
