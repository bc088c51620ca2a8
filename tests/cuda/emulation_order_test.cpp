// Orders of threads under a seed: what hides while all warps keep in step.
#include <algorithm>
#include <vector>

#include "cuda/device/builtins.h"
#include "cuda/support.h"
#include "emulation/cuda/emulation.h"

namespace bitgrad::cuda {
namespace {

constexpr int kTurns = 20;

// Each warp adds up what another warp left in shared memory, one shuffle a turn, then stores over what it left itself.
// Without the barrier before that a slower warp reads what should not be there yet.
BITGRAD_GLOBAL void read_then_overwrite(int* out, bool with_barrier) {
  int* const shared = dynamic_shared<int>();
  const unsigned thread = threadIdx.x, other = (thread + 32) % blockDim.x;
  shared[thread] = static_cast<int>(thread);
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < kTurns; ++i) sum += __shfl_sync(0xFFFFFFFFu, shared[other], static_cast<int>(thread % 32));
  if (with_barrier) __syncthreads();
  shared[thread] = 1000;
  out[thread] = sum;
}

// Of `seeds` orders, in how many some sum is wrong.
int wrong_orders(bool with_barrier, uint64_t seeds) {
  const uint64_t before = emulation::seed();
  int wrong = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    emulation::set_seed(seed);
    DeviceArray<int> out(128);
    launch(read_then_overwrite, {{1}, {128}, 128 * 4}, out.data(), with_barrier);
    const std::vector<int> values = out.values();
    bool right = true;
    for (int i = 0; i < 128; ++i) right = right && values[static_cast<size_t>(i)] == kTurns * ((i + 32) % 128);
    wrong += !right;
  }
  emulation::set_seed(before);
  return wrong;
}

TEST_CASE_METHOD(OnDevice, "A warp that runs ahead of the others shows a missing barrier that steps in time hide") {
  CHECK(wrong_orders(false, 12) >= 6);
  CHECK(wrong_orders(true, 12) == 0);
}

}  // namespace
}  // namespace bitgrad::cuda
