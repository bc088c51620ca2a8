// A batch of products (GemmBatch): what a kernel that takes one product at a time needs to run it.
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// Member i as a product alone.
GemmArgs member_of(const GemmArgs& args, int64_t i);

// Runs every member. Threads share members where these are many or small, else the work of each.
void run_members(const GemmArgs& args, void (*run)(const GemmArgs&));

// What a list of kernels names in place of a kernel that runs one product.
template <void (*kRun)(const GemmArgs&)>
void batched(const GemmArgs& args) {
  if (args.batch.count == 1) return kRun(args);
  run_members(args, kRun);
}

// Throws Error for a batch that is none (gemm.h).
void check_batch(const GemmArgs& args, const char* where);

}  // namespace bitgrad::kernels::gemm_detail
