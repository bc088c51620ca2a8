// An mbarrier: arrivals pending in this phase, arrivals per phase, bytes announced but not yet arrived, and the parity.
#include "emulation/cuda/barrier.h"

#include <cstring>

#include "bitgrad/base/text.h"
#include "emulation/cuda/tma.h"

namespace bitgrad::cuda::emulation {
namespace {

constexpr uint32_t kInitialised = 0x2D3;  // differs from the poison of shared memory

struct BarrierState {
  int32_t bytes;
  uint32_t due : 11;
  uint32_t arrivals : 10;
  uint32_t parity : 1;
  uint32_t mark : 10;
};
static_assert(sizeof(BarrierState) == sizeof(uint64_t));

BarrierState load(const uint64_t* barrier) {
  BarrierState state;
  std::memcpy(&state, barrier, sizeof state);
  return state;
}

void store(uint64_t* barrier, BarrierState state) {
  if (state.due == 0 && state.bytes == 0) {
    state.parity ^= 1;
    state.due = state.arrivals;
  }
  std::memcpy(barrier, &state, sizeof state);
  progress();
}

void arrive(uint64_t* barrier, uint32_t bytes) {
  BarrierState state = load(barrier);
  if (state.mark != kInitialised) fail_thread("an mbarrier was used before it was initialised");
  if (state.due == 0) fail_thread("more arrivals at an mbarrier than it was initialised for");
  --state.due;
  state.bytes += static_cast<int32_t>(bytes);
  store(barrier, state);
}

struct Wait {
  uint64_t* barrier;
  uint32_t parity;
};

// A deferred copy arrives when a thread waits for it.
bool phase_ended(void* context) {
  const Wait& wait = *static_cast<Wait*>(context);
  deliver_copies(wait.barrier);
  return load(wait.barrier).parity != wait.parity;
}

}  // namespace

uint32_t shared_address(const void* p) {
  const auto offset = static_cast<const char*>(p) - static_cast<const char*>(shared_base(cluster_rank()));
  if (offset < 0 || offset >= shared_bytes())
    fail_thread("an address that must lie in the dynamic shared memory of the block does not");
  return kSharedBegin + static_cast<uint32_t>(offset);
}

void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  if (shared_address(barrier) % 8 != 0) fail_thread("an mbarrier must lie at a multiple of 8 bytes");
  if (arrivals == 0 || arrivals > 1023) fail_thread("an mbarrier of the emulation has 1 to 1023 arrivals");
  BarrierState state{};
  state.due = state.arrivals = arrivals & 1023u;
  state.mark = kInitialised;
  std::memcpy(barrier, &state, sizeof state);
}

void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes) { arrive(barrier, bytes); }

void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  if (static_cast<int>(rank) >= cluster_size()) fail_thread("an arrival at a block that the cluster does not have");
  arrive(static_cast<uint64_t*>(at_shared_address(static_cast<int>(rank), shared_address(barrier))), 0);
}

void barrier_wait(uint64_t* barrier, uint32_t parity) {
  if (load(barrier).mark != kInitialised) fail_thread("an mbarrier was waited for before it was initialised");
  Wait wait{barrier, parity};
  wait_until(&phase_ended, &wait, parity == 0 ? "mbarrier, parity 0" : "mbarrier, parity 1");
}

void barrier_complete(uint64_t* barrier, uint32_t bytes) {
  BarrierState state = load(barrier);
  state.bytes -= static_cast<int32_t>(bytes);
  store(barrier, state);
}

}  // namespace bitgrad::cuda::emulation
