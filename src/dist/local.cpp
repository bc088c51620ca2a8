#include <cstring>

#include "bitgrad/dist/communicator.h"

namespace bitgrad {

void LocalCommunicator::all_gather(const void* part, int64_t bytes, void* out) {
  if (out != part && bytes > 0) std::memcpy(out, part, static_cast<size_t>(bytes));
}

void LocalCommunicator::reduce_scatter(const float* x, int64_t n, float* out) {
  if (out != x && n > 0) std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace bitgrad
