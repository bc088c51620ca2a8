// Family rowwise: the rank of a target among the elements of its row. Exact.
#include <cmath>

#include "kernels/kernel_table.h"
#include "kernels/rowwise.h"
#include "kernels/rowwise/rows.h"

namespace bitgrad::kernels {

using namespace rowwise;

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
