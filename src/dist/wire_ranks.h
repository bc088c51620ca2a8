// Ranks that are processes: the thread that runs a wire, and the communicators on it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/wire_calls.h"

namespace bitgrad::detail {

// One per process, or per rank where several wires are in one process. Its thread calls every function of the wire and
// sleeps between polls: libraries of messages move bytes only inside their calls, and burn a core when they wait.
class WireThread {
 public:
  using Open = std::function<std::unique_ptr<Wire>()>;

  // Starts the thread, which calls `open`.
  WireThread(std::string engine, Open open, void (*end_process)(int), std::chrono::milliseconds timeout);
  ~WireThread() { close(); }
  WireThread(const WireThread&) = delete;
  WireThread& operator=(const WireThread&) = delete;

  // Until `open` has returned. Throws Error(kDevice) with the text of what it throws, or if it does not return in time.
  void wait_until_open();
  // All ranks must make theirs in the same order. The thread must outlive them. Throws the Error after which a rank
  // could not be reached.
  std::shared_ptr<Communicator> communicator(const WireOptions& options);
  // Returns when all ranks have called it: nothing may be moved afterwards. Ends the process where that cannot be
  // waited for: after `timeout`, and after a failure within ten seconds, with the failure's code.
  void close();

  // For the communicators.
  void post(std::function<void()> task);
  WireMessages& messages() { return *messages_; }  // on the thread
  void add(std::shared_ptr<WireCalls> calls) { all_.push_back(std::move(calls)); }
  void remove(const std::shared_ptr<WireCalls>& calls);
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  const RankInfo& info() const { return info_; }
  void set_cores(int64_t cores) { info_.cores = cores; }  // before a communicator is made

 private:
  void run(const Open& open);
  void serve();
  bool run_tasks(std::chrono::microseconds most);
  bool look_at_calls();
  void lose(const Error& why);
  bool may_close();
  void end_wire();
  std::chrono::milliseconds end_time();

  const std::chrono::milliseconds timeout_;
  void (*const end_process_)(int);
  RankInfo info_;
  int64_t rank_ = 0, size_ = 1;
  int next_index_ = 0, max_tag_ = 0;

  // Of the thread.
  std::unique_ptr<WireMessages> messages_;
  std::vector<std::shared_ptr<WireCalls>> all_, removed_;
  std::optional<Clock::time_point> closing_since_ = {};
  bool hurried_ = false;  // the launcher is ending all ranks

  std::mutex mutex_;
  std::condition_variable wake_, state_changed_;
  // The members below are guarded by the mutex.
  std::vector<std::function<void()>> tasks_;
  bool opened_ = false, closing_ = false, closed_ = false;
  std::optional<Error> lost_ = {};              // a rank cannot be reached any more
  std::optional<ErrorCode> failure_code_ = {};  // of the first failure

  std::thread thread_;
};

}  // namespace bitgrad::detail
