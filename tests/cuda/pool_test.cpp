// Blocks of the memory pool that change hands between streams.
#include <vector>

#include "bitgrad/base/device.h"
#include "cuda/device/builtins.h"
#include "cuda/runtime/backend.h"
#include "cuda/runtime/pool.h"
#include "cuda/runtime/runtime.h"
#include "emulation/cuda/emulation.h"
#include "support/catch.h"

namespace bitgrad::cuda {
namespace {

BITGRAD_GLOBAL void set_values(int* out, int n, int value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) out[i] = value;
}

TEST_CASE("A block that is released on another stream is used again behind that stream's work") {
  const DeviceGuard guard(Device::cuda());
  const Stream side = stream_create();
  void* const block = memory_pool().acquire(400);
  set_current_stream(side);
  launch(set_values, {{1}, {32}}, static_cast<int*>(block), 100, 7);  // runs when somebody waits for the stream
  memory_pool().release(block);
  set_current_stream(nullptr);
  void* const again = memory_pool().acquire(400);
  CHECK(again == block);
  launch(set_values, {{1}, {32}}, static_cast<int*>(again), 100, 1);
  stream_synchronize(side);
  std::vector<int> values(100);
  cuda_backend().copy_to_host(values.data(), again, 400);
  CHECK(values == std::vector<int>(100, 1));
  memory_pool().release(again);
  stream_destroy(side);
}

}  // namespace
}  // namespace bitgrad::cuda
