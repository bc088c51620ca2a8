// The scheduler of one cluster of blocks on one host thread: fibers, and the places where they meet. Internal to
// tests/emulation/cuda/.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "emulation/cuda/block.h"
#include "emulation/cuda/emulation.h"
#include "emulation/cuda/fiber.h"

namespace bitgrad::cuda::emulation {

struct Cancelled {};  // unwinds the other threads of a cluster that failed

enum class State : uint8_t { kNew, kReady, kRunning, kWaiting, kDone };

struct Fiber {
  FiberContext context;
  void* stack = nullptr;
  const char* where = "not started";
  int block = 0, rank = 0;
  uint3 thread{};  // the rank as an index
  unsigned cluster_phase = 0;
  State state = State::kNew;
};

// Threads that wait for one another. Slots are in lane order.
struct Meeting {
  RunCollective run = nullptr;
  const char* where = "";
  unsigned mask = 0;
  int arrived = 0, expected = 0, first = 0;
  bool open = false;
  std::vector<void*> slots;
  std::vector<int> members;
};

struct Barrier {
  int arrived = 0, expected = 0;
  std::vector<int> waiting;
};

struct Polling {
  int fiber;
  bool (*ready)(void*);
  void* context;
};

struct BlockState {
  uint3 index{};
  int done = 0;
  Barrier barrier;
  int predicate_count = 0, predicate_result = 0;
  std::vector<Barrier> named;
  std::vector<unsigned> exited;             // lanes that have returned, per warp
  std::vector<std::vector<Meeting>> warps;  // open meetings per warp, one per mask
  std::vector<Meeting> warpgroups;
};

class Scheduler {
 public:
  void run(const Grid& grid, int64_t first);

  Fiber& self() { return fibers_[static_cast<size_t>(current_)]; }
  BlockState& block() { return blocks_[static_cast<size_t>(self().block)]; }
  bool running() const { return current_ >= 0; }
  int threads() const { return threads_; }
  const Grid& grid() const { return *grid_; }
  void* shared(int rank) { return shared_ + static_cast<size_t>(rank) * shared_stride_; }
  int64_t serial() const { return serial_; }
  uint32_t random() {
    return static_cast<uint32_t>((state_ = state_ * 6364136223846793005u + 1442695040888963407u) >> 33);
  }

  void meet(Meeting& meeting, int lane, void* slot);
  Meeting& warp_meeting(unsigned mask, RunCollective run, const char* where);
  Meeting& group_meeting(RunCollective run, const char* where);
  void arrive(Barrier& barrier, int expected, bool wait, const char* where);
  void cluster_arrive();
  void cluster_wait();
  void wait_until(bool (*ready)(void*), void* context, const char* where);
  void yield(const char* where);
  void note_progress() { idle_yields_ = 0; }
  [[noreturn]] void fail_here(const std::string& fact);
  static void entry();

 private:
  void begin(const Grid& grid, int64_t first);
  void loop();
  void resume(int fiber);
  void suspend(const char* where);
  void make_ready(int fiber, bool first = false);
  bool runs_ahead(int fiber) const;
  void release(std::vector<int>& members);
  void finish_thread();
  bool poll();
  void cancel_all();
  void check_after();
  [[noreturn]] void deadlock(const char* what);
  std::string place(const Fiber& fiber) const;
  void reserve_shared();

  const Grid* grid_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<BlockState> blocks_;
  std::deque<int> ready_;
  std::vector<uint8_t> ahead_;  // per warp of the cluster: whether the seed lets it run before all others
  std::vector<Polling> polling_;
  std::vector<int> order_;
  FiberContext main_;
  StackPool stacks_;
  std::unique_ptr<unsigned char[]> shared_memory_;
  unsigned char* shared_ = nullptr;
  size_t shared_stride_ = 0, shared_capacity_ = 0;
  Barrier cluster_;
  unsigned cluster_phase_ = 0;
  int current_ = -1, threads_ = 0, live_ = 0;
  int64_t serial_ = 0, idle_yields_ = 0;
  uint64_t state_ = 0;
  bool cancelled_ = false;
  std::exception_ptr error_;
};

// The scheduler of the calling host thread.
Scheduler& scheduler();

}  // namespace bitgrad::cuda::emulation
