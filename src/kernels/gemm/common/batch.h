// Batches of products (GemmBatch): what a kernel for a single product needs to run a batch.
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// Member i as a single product.
GemmArgs member_of(const GemmArgs& args, int64_t i);

// Runs every member. Threads share the members if these are many or small, otherwise the work of each member.
void run_members(const GemmArgs& args, void (*run)(const GemmArgs&));

// Wraps a kernel that runs one product; kernel lists name this in its place.
template <void (*kRun)(const GemmArgs&)>
void batched(const GemmArgs& args) {
  if (args.batch.count == 1) return kRun(args);
  run_members(args, kRun);
}

// Throws Error if the batch is invalid (gemm.h).
void check_batch(const GemmArgs& args, const char* where);

}  // namespace bitgrad::kernels::gemm_detail
