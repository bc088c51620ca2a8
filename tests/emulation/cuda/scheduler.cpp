// Decides which thread of a cluster runs when, and reports deadlocks.
#include "emulation/cuda/scheduler.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "bitgrad/base/error.h"
#include "emulation/cuda/builtins.h"
#include "emulation/cuda/tma.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local uint3 blockDim{};
constinit thread_local uint3 gridDim{};

namespace bitgrad::cuda::emulation {
namespace {

constexpr int kSharedAlign = 1024;
constexpr int kSharedGuard = 256;  // bytes after a block's shared memory that must not change
constexpr unsigned char kPoison = 0xA5;
constexpr int64_t kYieldLimit = 2000;  // number of rounds in which all threads only spin

uint64_t initial_seed() {
  const char* const text = std::getenv("BITGRAD_EMULATION_SEED");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}
std::atomic<uint64_t>& seed_word() {
  static std::atomic<uint64_t> word{initial_seed()};
  return word;
}

std::string text(uint3 v) { return concat('(', v.x, ',', v.y, ',', v.z, ')'); }

uint3 unravel(int64_t linear, const dim3& shape) {
  return {static_cast<unsigned>(linear % shape.x), static_cast<unsigned>(linear / shape.x % shape.y),
          static_cast<unsigned>(linear / shape.x / shape.y)};
}

}  // namespace

Scheduler& scheduler() {
  static thread_local Scheduler instance;
  return instance;
}

void run_cluster(const Grid& grid, int64_t first) { scheduler().run(grid, first); }
void set_seed(uint64_t value) { seed_word().store(value); }
uint64_t seed() { return seed_word().load(std::memory_order_relaxed); }

std::string Scheduler::place(const Fiber& fiber) const {
  return concat("block ", text(blocks_[static_cast<size_t>(fiber.block)].index), " thread ",
                text(unravel(fiber.rank, grid_->block)));
}

void Scheduler::fail_here(const std::string& fact) {
  fail_with(ErrorCode::kDevice, grid_->kernel, place(self()), ": ", fact);
}

void Scheduler::reserve_shared() {
  const size_t bytes = static_cast<size_t>(grid_->shared_bytes) + kSharedGuard;
  shared_stride_ = (bytes + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
  const size_t total = shared_stride_ * static_cast<size_t>(grid_->cluster) + kSharedAlign;
  if (total > shared_capacity_) {
    shared_memory_ = std::make_unique_for_overwrite<unsigned char[]>(total);
    shared_capacity_ = total;
    const uintptr_t address = reinterpret_cast<uintptr_t>(shared_memory_.get());
    shared_ = shared_memory_.get() + (kSharedAlign - address % kSharedAlign) % kSharedAlign;
  }
  std::memset(shared_, kPoison, shared_stride_ * static_cast<size_t>(grid_->cluster));
}

void Scheduler::begin(const Grid& grid, int64_t first) {
  grid_ = &grid;
  threads_ = static_cast<int>(grid.block.x * grid.block.y * grid.block.z);
  const int total = threads_ * grid.cluster;
  const size_t warps = static_cast<size_t>((threads_ + 31) / 32);
  ++serial_;
  state_ = emulation::seed() * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(first) * 0xD1B54A32D192ED03u + 1;
  if (fibers_.size() < static_cast<size_t>(total)) fibers_.resize(static_cast<size_t>(total));
  blocks_.resize(static_cast<size_t>(grid.cluster));
  for (int b = 0; b < grid.cluster; ++b) {
    BlockState& state = blocks_[static_cast<size_t>(b)];
    state.index = unravel(first + b, grid.grid);
    state.done = state.predicate_count = 0;
    state.barrier.arrived = 0;
    state.barrier.waiting.clear();
    state.named.assign(16, {});
    state.exited.assign(warps, 0);
    state.warps.resize(warps);
    for (auto& meetings : state.warps)
      for (Meeting& m : meetings) m.open = false;
    state.warpgroups.resize((warps + 3) / 4);
    for (Meeting& m : state.warpgroups) m.open = false;
  }
  cluster_ = {};
  cluster_phase_ = 0;
  order_.resize(static_cast<size_t>(total));
  for (int i = 0; i < total; ++i) order_[static_cast<size_t>(i)] = i;
  if (emulation::seed() != 0)
    for (int i = total - 1; i > 0; --i)
      std::swap(order_[static_cast<size_t>(i)], order_[random() % (static_cast<unsigned>(i) + 1)]);
  ahead_.assign(warps * static_cast<size_t>(grid.cluster), 0);
  if (emulation::seed() != 0)
    for (uint8_t& ahead : ahead_) ahead = random() % 2;
  ready_.assign(order_.begin(), order_.end());
  polling_.clear();
  for (int i = 0; i < total; ++i) {
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    fiber.block = i / threads_;
    fiber.rank = i % threads_;
    fiber.thread = unravel(fiber.rank, grid.block);
    fiber.state = State::kNew;
    fiber.where = "not started";
    fiber.cluster_phase = 0;
  }
  live_ = total;
  idle_yields_ = 0;
  cancelled_ = false;
  error_ = nullptr;
  reserve_shared();
  blockDim = {grid.block.x, grid.block.y, grid.block.z};
  gridDim = {grid.grid.x, grid.grid.y, grid.grid.z};
}

void Scheduler::entry() {
  Scheduler& s = scheduler();
  fiber_entered(s.main_);
  try {
    if (!s.cancelled_) s.grid_->call(s.grid_->context);
  } catch (const Cancelled&) {
  } catch (...) {
    if (s.error_ == nullptr) s.error_ = std::current_exception();
  }
  Fiber& fiber = s.self();
  fiber.state = State::kDone;
  fiber_switch(fiber.context, s.main_, true);
  __builtin_unreachable();
}

void Scheduler::resume(int index) {
  Fiber& fiber = fibers_[static_cast<size_t>(index)];
  if (fiber.state == State::kNew) {
    fiber.stack = stacks_.acquire();
    fiber_prepare(fiber.context, fiber.stack, &Scheduler::entry);
  }
  fiber.state = State::kRunning;
  current_ = index;
  threadIdx = fiber.thread;
  blockIdx = blocks_[static_cast<size_t>(fiber.block)].index;
  fiber_switch(main_, fiber.context);
  if (fiber.state == State::kDone) {
    fiber_discard(fiber.context);
    stacks_.release(fiber.stack);
    if (error_ == nullptr && !cancelled_) finish_thread();
    --live_;
  }
  current_ = -1;
}

// Called by a thread that cannot continue.
void Scheduler::suspend(const char* where) {
  Fiber& fiber = self();
  fiber.where = where;
  if (fiber.state == State::kRunning) fiber.state = State::kWaiting;
  fiber_switch(fiber.context, main_);
  if (cancelled_) throw Cancelled{};
}

void Scheduler::make_ready(int index, bool first) {
  fibers_[static_cast<size_t>(index)].state = State::kReady;
  if (first)
    ready_.push_front(index);
  else
    ready_.push_back(index);
}

bool Scheduler::runs_ahead(int index) const {
  const Fiber& fiber = fibers_[static_cast<size_t>(index)];
  return ahead_[static_cast<size_t>(fiber.block * ((threads_ + 31) / 32) + fiber.rank / 32)] != 0;
}

// Makes all members ready: in order or, with a seed, from a random position on, forwards or backwards. Members of warps
// that run ahead are placed before all ready threads, so they get as far as barriers allow; the others keep in step.
void Scheduler::release(std::vector<int>& members) {
  idle_yields_ = 0;
  if (emulation::seed() != 0 && members.size() > 1) {
    const uint32_t r = random();
    std::rotate(members.begin(), members.begin() + static_cast<int64_t>(r % members.size()), members.end());
    if ((r >> 16) % 2 != 0) std::reverse(members.begin(), members.end());
  }
  for (const int member : members)
    if (!runs_ahead(member)) make_ready(member);
  for (auto member = members.rbegin(); member != members.rend(); ++member)
    if (runs_ahead(*member)) make_ready(*member, true);
  members.clear();
}

bool Scheduler::poll() {
  bool found = false;
  for (size_t i = 0; i < polling_.size();) {
    if (polling_[i].ready(polling_[i].context)) {
      make_ready(polling_[i].fiber);
      polling_.erase(polling_.begin() + static_cast<int64_t>(i));
      found = true;
    } else {
      ++i;
    }
  }
  if (found) idle_yields_ = 0;
  return found;
}

void Scheduler::yield(const char* where) {
  if (++idle_yields_ > kYieldLimit * (live_ + 1)) deadlock("all threads spin or wait");
  make_ready(current_);
  suspend(where);
}

void Scheduler::deadlock(const char* what) {
  std::string list;
  int shown = 0;
  const char* last = nullptr;
  for (int i = 0; i < threads_ * grid_->cluster && shown < 12; ++i) {
    const Fiber& fiber = fibers_[static_cast<size_t>(i)];
    if (fiber.state == State::kDone) continue;
    if (last != nullptr && std::strcmp(last, fiber.where) == 0 && i % 32 != 0) continue;  // as the previous lane
    list += concat(shown == 0 ? "" : "; ", place(fiber), " in ", fiber.where);
    last = fiber.where;
    ++shown;
  }
  fail_with(ErrorCode::kDevice, grid_->kernel, "deadlock: ", what, ": ", list, '.');
}

void Scheduler::cancel_all() {
  cancelled_ = true;
  for (int i = 0; i < threads_ * grid_->cluster; ++i) {
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    if (fiber.state == State::kNew || fiber.state == State::kDone) continue;
    resume(i);
  }
}

void Scheduler::loop() {
  int turns = 0;
  while (live_ > 0 && error_ == nullptr) {
    if (!polling_.empty() && (ready_.empty() || ++turns % 256 == 0)) poll();
    if (ready_.empty()) {
      try {
        deadlock("nobody can go on");
      } catch (...) {
        error_ = std::current_exception();
      }
      break;
    }
    const int next = ready_.front();
    ready_.pop_front();
    resume(next);
  }
}

void Scheduler::check_after() {
  if (!stores_are_done())
    fail_with(ErrorCode::kDevice, grid_->kernel, "block ", text(blocks_[0].index),
              ": ended with TMA stores that nobody waited for.");
  for (int b = 0; b < grid_->cluster; ++b) {
    const unsigned char* const guard = static_cast<unsigned char*>(shared(b)) + grid_->shared_bytes;
    for (int i = 0; i < kSharedGuard; ++i)
      if (guard[i] != kPoison)
        fail_with(ErrorCode::kDevice, grid_->kernel, "block ", text(blocks_[static_cast<size_t>(b)].index), ": wrote ",
                  i, " bytes past the ", grid_->shared_bytes, " bytes of dynamic shared memory.");
  }
}

void Scheduler::run(const Grid& grid, int64_t first) {
  begin(grid, first);
  loop();
  if (error_ != nullptr) {
    cancel_all();
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  check_after();
}

}  // namespace bitgrad::cuda::emulation
