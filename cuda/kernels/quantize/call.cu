#include "cuda/kernels/quantize/call.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "cuda/runtime/runtime.h"
#include "kernels/quantize/plan.h"

namespace bitgrad::cuda {

QuantizeCall quantize_call(const QuantizeArgs& args) {
  const quantize_loops::Plan plan(args);
  QuantizeCall call;
  call.rows = args.rows;
  call.cols = args.cols;
  call.x = args.x.data;
  call.bf16 = args.x.bf16();
  call.ldx = args.ldx;
  call.codes = code_rows(args.codes, args.stride, plan.info.bits, args.cols);
  call.mask = reinterpret_cast<uint8_t*>(args.mask);
  call.flags = args.flags;
  ensure(args.row_sums == nullptr || plan.info.bits == 1 || (plan.info.bits == 8 && args.rule != CodeRule::kCodebook),
         "quantize", "sums of rows of ", args.dtype, ", expected integers of 8 bits or codes of one");
  call.row_sums = args.row_sums;
  if (args.row_sums != nullptr && args.rows > 0) fill_async(args.row_sums, 0, 4 * args.rows, current_stream());
  call.scale = args.scale;
  if (args.sr != nullptr) call.draws = *args.sr;
  call.first_element = args.first_element;
  call.lo = plan.range.lo;
  call.hi = plan.range.hi;
  call.parts = plan.range.parts;
  call.code_mask = plan.range.code_mask;
  call.nonfinite_code = plan.levels.zero;
  call.sign = plan.range.sign;
  call.stochastic = plan.stochastic;
  call.clip = plan.clip;
  call.wide = reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0 && args.ldx % (call.bf16 ? 8 : 4) == 0;
  return call;
}

CodebookLevels codebook_levels(DType dtype) {
  const quantize_loops::SortedLevels sorted = quantize_loops::sort_levels(dtype.info());
  CodebookLevels levels{};
  std::copy(sorted.bounds.begin(), sorted.bounds.end(), levels.bounds);
  std::copy(sorted.codes.begin(), sorted.codes.end(), levels.codes);
  levels.count = static_cast<int>(sorted.codes.size());
  return levels;
}

}  // namespace bitgrad::cuda
