// Where threads wait for one another: warps, warpgroups, barriers, clusters.
#include <algorithm>
#include <cstring>

#include "bitgrad/base/error.h"
#include "emulation/cuda/scheduler.h"

namespace bitgrad::cuda::emulation {

// A thread that returns while others wait for it would make them wait forever, which is an error.
void Scheduler::finish_thread() {
  idle_yields_ = 0;
  const Fiber& fiber = self();
  BlockState& state = block();
  ++state.done;
  const size_t warp = static_cast<size_t>(fiber.rank / 32);
  const unsigned bit = 1u << (fiber.rank % 32);
  state.exited[warp] |= bit;
  const auto complain = [&](const char* where, const std::vector<int>& waiting) {
    error_ = std::make_exception_ptr(Error(concat('[', grid_->kernel, "] ", place(fiber), ": returned while ",
                                                  place(fibers_[static_cast<size_t>(waiting[0])]), " waits for it in ",
                                                  where, ". All threads that a barrier counts must reach it."),
                                           ErrorCode::kDevice));
  };
  if (!state.barrier.waiting.empty()) return complain("__syncthreads", state.barrier.waiting);
  for (const Meeting& m : state.warps[warp])
    if (m.open && (m.mask & bit) != 0) return complain(m.where, m.members);
  const Meeting& group = state.warpgroups[warp / 4];
  if (group.open) complain(group.where, group.members);
}

void Scheduler::meet(Meeting& m, int lane, void* slot) {
  m.slots[static_cast<size_t>(lane)] = slot;
  m.members.push_back(current_);
  if (++m.arrived < m.expected) {
    suspend(m.where);
    return;
  }
  m.open = false;
  if (m.run != nullptr) m.run(m.slots.data(), static_cast<int>(m.slots.size()));
  // The last thread to arrive continues at once; `m` may be open again before the others run.
  m.members.pop_back();
  release(m.members);
}

void open_meeting(Meeting& m, RunCollective run, const char* where, unsigned mask, int expected, size_t slots) {
  m.run = run;
  m.where = where;
  m.mask = mask;
  m.arrived = 0;
  m.expected = expected;
  m.open = true;
  m.slots.assign(slots, nullptr);
  m.members.clear();
}

Meeting& Scheduler::warp_meeting(unsigned mask, RunCollective run, const char* where) {
  const Fiber& fiber = self();
  BlockState& state = block();
  const int warp = fiber.rank / 32, lane = fiber.rank % 32;
  const int lanes = std::min(32, threads_ - warp * 32);
  if (lanes < 32) mask &= (1u << lanes) - 1;  // lanes that the block does not have cannot participate
  if (((mask >> lane) & 1u) == 0) fail_here(concat(where, ": the mask ", mask, " lacks the calling lane ", lane, '.'));
  const unsigned gone = mask & state.exited[static_cast<size_t>(warp)];
  if (gone != 0)
    fail_here(concat(where, ": the mask ", mask, " names lane ", __builtin_ctz(gone), " that has returned."));
  auto& meetings = state.warps[static_cast<size_t>(warp)];
  Meeting* free = nullptr;
  for (Meeting& m : meetings) {
    if (!m.open) {
      free = &m;
    } else if (m.mask == mask) {
      if (m.run != run || (m.where != where && std::strcmp(m.where, where) != 0))
        fail_here(concat("is in ", where, " while other lanes of its warp are in ", m.where, '.'));
      return m;
    } else if ((m.mask & mask) != 0) {
      fail_here(concat(where, ": the mask ", mask, " overlaps the mask ", m.mask, " that others wait with in ", m.where,
                       '.'));
    }
  }
  if (free == nullptr) {
    meetings.reserve(32);  // the maximum of disjoint masks, so that references stay valid
    free = &meetings.emplace_back();
  }
  open_meeting(*free, run, where, mask, __builtin_popcount(mask), 32);
  return *free;
}

Meeting& Scheduler::group_meeting(RunCollective run, const char* where) {
  BlockState& state = block();
  const int group = self().rank / 128;
  Meeting& m = state.warpgroups[static_cast<size_t>(group)];
  if (m.open) {
    if (m.run != run) fail_here(concat("is in ", where, " while other threads of its warpgroup are in ", m.where, '.'));
    return m;
  }
  const int warps = static_cast<int>(state.exited.size());
  for (int w = group * 4; w < std::min(warps, group * 4 + 4); ++w)
    if (state.exited[static_cast<size_t>(w)] != 0)
      fail_here(concat(where, ": threads of its warpgroup have returned."));
  open_meeting(m, run, where, 0, std::min(128, threads_ - group * 128), 128);
  return m;
}

void Scheduler::arrive(Barrier& barrier, int expected, bool wait, const char* where) {
  if (barrier.arrived > 0 && barrier.expected != expected)
    fail_here(concat(where, ": got ", expected, " threads, others wait for ", barrier.expected, '.'));
  barrier.expected = expected;
  ++barrier.arrived;
  if (barrier.arrived < expected) {
    if (!wait) return;
    barrier.waiting.push_back(current_);
    suspend(where);
    return;
  }
  barrier.arrived = 0;
  release(barrier.waiting);
}

void Scheduler::cluster_arrive() {
  self().cluster_phase = cluster_phase_;
  idle_yields_ = 0;
  if (++cluster_.arrived < threads_ * grid_->cluster) return;
  cluster_.arrived = 0;
  ++cluster_phase_;
  release(cluster_.waiting);
}

void Scheduler::cluster_wait() {
  if (self().cluster_phase != cluster_phase_) return;
  cluster_.waiting.push_back(current_);
  suspend("cluster wait");
}

void Scheduler::wait_until(bool (*ready)(void*), void* context, const char* where) {
  if (ready(context)) return;
  polling_.push_back({current_, ready, context});
  suspend(where);
}

}  // namespace bitgrad::cuda::emulation
