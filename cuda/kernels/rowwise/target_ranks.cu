// Family rowwise: the rank of a target among the elements of its row (contract: kernels/rowwise.h).
#include "cuda/kernels/rowwise/team.h"

namespace bitgrad::cuda {
namespace rowwise {

struct RankParams {
  int64_t rows, cols;
  Floats x;
  Targets targets;
  int32_t* rank;
};

template <bool kLong>
BITGRAD_GLOBAL void target_ranks_kernel(RankParams p) {
  __shared__ Scratch<int32_t, kLong> scratch;
  const auto team = Team<kLong>::of(p.rows, p.cols);
  const int64_t at = team.row * p.cols;
  const bool counts = team.live && !p.targets.ignored(team.row);
  const int64_t label = counts ? p.targets.of(team.row, p.cols) : 0;
  const float v = counts ? p.x[at + label] : 0.0f;
  const int32_t rank = team.reduce(scratch, int32_t{0}, Add{}, [&](int64_t i) {
    const float x = p.x[at + i];
    if (i == label) return 0;
    return (i < label ? x < v : x <= v) ? 0 : 1;
  });
  if (team.leads()) p.rank[team.row] = counts && v == v ? rank : kNoRank;
}

}  // namespace rowwise

void target_ranks_cuda(const TargetRanksArgs& args) {
  using namespace rowwise;
  const RankParams p{args.rows, args.cols, floats_of(args.x), {args.targets, args.ignore, args.flags}, args.rank};
  launch_rows("target_ranks_cuda", target_ranks_kernel<false>, target_ranks_kernel<true>, args.rows, args.cols, p);
}

}  // namespace bitgrad::cuda
