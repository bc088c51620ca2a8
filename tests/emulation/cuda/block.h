// Runs one cluster of blocks of an emulated kernel on the calling host thread.
#pragma once

#include <cstdint>
#include <string>

#include "emulation/cuda/vector_types.h"

namespace bitgrad::cuda::emulation {

struct Grid {
  dim3 grid, block;
  int cluster = 1;  // blocks along x
  int shared_bytes = 0;
  std::string kernel;                   // for errors
  void (*call)(const void*) = nullptr;  // runs the kernel as one thread
  const void* context = nullptr;
};

// Runs the cluster whose first block has the linear index `first` (x fastest). Throws Error(kDevice).
void run_cluster(const Grid& grid, int64_t first);

}  // namespace bitgrad::cuda::emulation
