// Family rowwise: the arg max of each row, and the rank of a target among the elements of its row. Exact.
#include <cmath>

#include "bitgrad/kernels/rowwise.h"
#include "kernels/cpu_kernels.h"
#include "kernels/rowwise/rows.h"

namespace bitgrad::kernels {

using namespace rowwise;

namespace {

int32_t first_largest(const float* x, int64_t n) {
  if (reduce_loops::loops().any_nonfinite(n, x)) {
    const float* const nan = std::find_if(x, x + n, [](float v) { return std::isnan(v); });
    if (nan != x + n) return static_cast<int32_t>(nan - x);
  }
  return static_cast<int32_t>(std::find(x, x + n, reduce_row(ReduceRule::kMax, x, n)) - x);
}

}  // namespace

void cpu::arg_max_rows(const ArgMaxRowsArgs& args) {
  for_ranges_of_rows(args.rows, args.cols, 1, [&](int64_t begin, int64_t end, float* space) {
    for (int64_t r = begin; r < end; ++r)
      args.index[r] = first_largest(read_floats(args.x, r * args.cols, args.cols, space), args.cols);
  });
}

void cpu::target_ranks(const TargetRanksArgs& args) {
  for_ranges_of_rows(args.rows, args.cols, 1, [&](int64_t begin, int64_t end, float* space) {
    for (int64_t r = begin; r < end; ++r) {
      args.rank[r] = kNoRank;
      if (args.targets[r] == args.ignore) continue;
      const float* const x = read_floats(args.x, r * args.cols, args.cols, space);
      const int64_t label = class_of(args.targets[r], args.cols, args.flags);
      const float v = x[label];
      if (std::isnan(v)) continue;
      args.rank[r] = static_cast<int32_t>(loops().count_from(label, x, v, true) +
                                          loops().count_from(args.cols - label - 1, x + label + 1, v, false));
    }
  });
}

}  // namespace bitgrad::kernels
