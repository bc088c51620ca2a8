// The sweep of kernels/update_rows.h as kernels receive it, and the kernels for each update rule.
#pragma once

#include "cuda/kernels/contracts.h"
#include "cuda/kernels/pack/frag64.h"
#include "cuda/kernels/quantize/call.h"
#include "cuda/runtime/runtime.h"
#include "kernels/update_rows.h"

namespace bitgrad::cuda {

inline constexpr int kSweepThreads = 256;

// A block processes `block_rows` rows of one piece of the columns. A team of its threads processes one row at a time.
struct SweepCall {
  int64_t rows = 0, cols = 0;
  int64_t piece = 0, pieces = 1;  // columns; a single piece if scales are fitted to whole rows
  int team = 32, block_rows = 1;  // threads of a team: a warp or the block
  int64_t room = 0;               // values that each team keeps in shared memory; 0: reads them again
  bool by_four = false;           // every row of every array is aligned to four elements
  float* w = nullptr;
  float* state[2] = {nullptr, nullptr};
  const void* sums = nullptr;
  bool bf16 = false;
  float divisor = 1, clip_value = 0, factor = 1;
  const StepScalars* live = nullptr;
  SteRule ste = SteRule::kIdentity;
  bool times_scale = false;
  bool knows_codes = false;  // the kernel is specialized for `rule`; else it has no codes
  CodeRule rule = CodeRule::kInverse;
  QuantizeCall before;  // the codes to which the gradient belongs: range and scales
  bool clamps = false, floors = false;
  float clamp = 0, floor = 0;
  bool coded = false, fitted = false;
  QuantizeCall codes;
  RowFit fit;
  float* scale = nullptr;
  int32_t* zero = nullptr;
  float* partial = nullptr;  // sums of chunks of 1024 values: [rows, chunks], if a mean is fitted
  int64_t chunks = 0;
  CodeRows transposed;     // no data: not requested
  Frag64Args frag64 = {};  // no out: not requested
};

// In update_rows_sgd.cu and update_rows_adam.cu: launch the kernel for the update and the code rule.
void launch_sgd_rows(const SgdArgs& update, const SweepCall& call, const LaunchShape& shape);
void launch_adam_rows(const AdamArgs& update, const SweepCall& call, const LaunchShape& shape);

}  // namespace bitgrad::cuda
