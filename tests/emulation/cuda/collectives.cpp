// The functions of emulation.h and the warp builtins, on top of the scheduler.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "emulation/cuda/builtins.h"
#include "emulation/cuda/scheduler.h"

namespace bitgrad::cuda::emulation {
namespace {

struct ShuffleSlot {
  uint64_t value, out;
  int source;
};
struct BallotSlot {
  bool predicate;
  unsigned out;
};
struct ReduceSlot {
  int64_t value, out;
  Reduce kind;
};

int64_t combine(Reduce kind, int64_t a, int64_t b) {
  switch (kind) {
    case Reduce::kAdd:
      return a + b;
    case Reduce::kMin:
      return a < b ? a : b;
    case Reduce::kMax:
      return a > b ? a : b;
    case Reduce::kAnd:
      return a & b;
    case Reduce::kOr:
      return a | b;
    case Reduce::kXor:
      return a ^ b;
  }
  return 0;
}

}  // namespace

void warp_collective(unsigned mask, void* slot, RunCollective run, const char* where) {
  Scheduler& s = scheduler();
  s.meet(s.warp_meeting(mask, run, where), s.self().rank % 32, slot);
}
void collective(int threads, void* slot, RunCollective run, const char* where) {
  Scheduler& s = scheduler();
  if (threads == 32) return warp_collective(0xffffffffu, slot, run, where);
  ensure(threads == 128, "collective", "got ", threads, " threads, expected 32 or 128.");
  s.meet(s.group_meeting(run, where), s.self().rank % 128, slot);
}
void block_barrier(const char* where) {
  Scheduler& s = scheduler();
  if (s.block().done > 0) s.fail_here(concat(where, ": ", s.block().done, " threads of the block have returned."));
  s.arrive(s.block().barrier, s.threads(), true, where);
}
int barrier_count(bool predicate) {
  Scheduler& s = scheduler();
  BlockState& state = s.block();
  state.predicate_count += predicate ? 1 : 0;
  if (state.barrier.arrived + 1 == s.threads()) {
    state.predicate_result = state.predicate_count;
    state.predicate_count = 0;
  }
  block_barrier("__syncthreads_count");
  const int result = state.predicate_result;
  block_barrier("__syncthreads_count");  // everyone reads the result before the next one is computed
  return result;
}
void named_barrier(int id, int threads, const char* where) {
  Scheduler& s = scheduler();
  s.arrive(s.block().named.at(static_cast<size_t>(id)), threads, true, where);
}
void named_barrier_arrive(int id, int threads, const char* where) {
  Scheduler& s = scheduler();
  s.arrive(s.block().named.at(static_cast<size_t>(id)), threads, false, where);
}
void cluster_arrive() { scheduler().cluster_arrive(); }
void cluster_wait() { scheduler().cluster_wait(); }
void wait_until(bool (*ready)(void*), void* context, const char* where) {
  scheduler().wait_until(ready, context, where);
}
void yield(const char* where) { scheduler().yield(where); }
void progress() { scheduler().note_progress(); }

bool inside_kernel() { return scheduler().running(); }
int thread_rank() { return scheduler().self().rank; }
int lane() { return scheduler().self().rank % 32; }
int cluster_rank() { return scheduler().self().block; }
int cluster_size() { return scheduler().grid().cluster; }
void* shared_base(int rank) { return scheduler().shared(rank); }
int shared_bytes() { return scheduler().grid().shared_bytes; }
int64_t block_serial() { return scheduler().serial(); }
uint32_t random() { return scheduler().random(); }
void fail_thread(const std::string& fact) { scheduler().fail_here(fact); }

int shuffle_source(Shuffle kind, int lane, int argument, int width) {
  const int first = lane / width * width, last = first + width - 1;
  switch (kind) {
    case Shuffle::kIndex:
      return first + (argument & (width - 1));
    case Shuffle::kUp:
      return lane - argument < first ? lane : lane - argument;
    case Shuffle::kDown:
      return lane + argument > last ? lane : lane + argument;
    case Shuffle::kXor:
      return (lane ^ argument) > last ? lane : (lane ^ argument);
  }
  return lane;
}

uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t value, int argument, int width) {
  ShuffleSlot slot{value, 0, shuffle_source(kind, lane(), argument, width)};
  const auto run = +[](void* const* slots, int lanes) {
    for (int i = 0; i < lanes; ++i) {
      auto* const mine = static_cast<ShuffleSlot*>(slots[i]);
      if (mine == nullptr) continue;
      const auto* const other = static_cast<const ShuffleSlot*>(slots[mine->source]);
      // A lane that does not participate supplies an undefined value: poison here.
      mine->out = other == nullptr ? 0xA5A5A5A5A5A5A5A5u : other->value;
    }
  };
  warp_collective(mask, &slot, run, "__shfl_sync");
  return slot.out;
}

unsigned ballot(unsigned mask, bool predicate, const char* where) {
  BallotSlot slot{predicate, 0};
  const auto run = +[](void* const* slots, int lanes) {
    unsigned bits = 0;
    for (int i = 0; i < lanes; ++i)
      if (slots[i] != nullptr && static_cast<BallotSlot*>(slots[i])->predicate) bits |= 1u << i;
    for (int i = 0; i < lanes; ++i)
      if (slots[i] != nullptr) static_cast<BallotSlot*>(slots[i])->out = bits;
  };
  warp_collective(mask, &slot, run, where);
  return slot.out;
}

int64_t reduce(Reduce kind, unsigned mask, int64_t value) {
  ReduceSlot slot{value, 0, kind};
  const auto run = +[](void* const* slots, int lanes) {
    const ReduceSlot* first = nullptr;
    int64_t sum = 0;
    for (int i = 0; i < lanes; ++i) {
      const auto* const s = static_cast<const ReduceSlot*>(slots[i]);
      if (s == nullptr) continue;
      sum = first == nullptr ? s->value : combine(s->kind, sum, s->value);
      if (first == nullptr) first = s;
    }
    for (int i = 0; i < lanes; ++i)
      if (slots[i] != nullptr) static_cast<ReduceSlot*>(slots[i])->out = sum;
  };
  warp_collective(mask, &slot, run, "__reduce_sync");
  return slot.out;
}

}  // namespace bitgrad::cuda::emulation

unsigned __activemask() {
  using namespace bitgrad::cuda::emulation;
  const Scheduler& s = scheduler();
  const Fiber& fiber = const_cast<Scheduler&>(s).self();
  const int warp = fiber.rank / 32, lanes = std::min(32, s.threads() - warp * 32);
  const unsigned all = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
  return all & ~const_cast<Scheduler&>(s).block().exited[static_cast<size_t>(warp)];
}
