// Family rowwise: the argmax of rows, and the rank of a target among the elements of its row (contracts:
// bitgrad/kernels/rowwise.h).
#include "cuda/kernels/rowwise/rowwise_cuda.h"
#include "cuda/kernels/rowwise/targets.h"
#include "cuda/kernels/rowwise/team.h"

namespace bitgrad::cuda {
namespace rowwise {

// A key that is larger for larger x and, among equal x, for the first; NaN has the largest keys.
BITGRAD_DEVICE inline uint64_t key_of(float x, int64_t i) {
  const uint32_t bits = std::bit_cast<uint32_t>(x == 0.0f ? 0.0f : x);
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{x != x ? 0xFFFFFFFFu : ordered} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(i));
}

struct ArgMaxParams {
  int64_t rows, cols;
  Floats x;
  int32_t* index;
};

template <bool kLong>
BITGRAD_GLOBAL void arg_max_kernel(ArgMaxParams p) {
  __shared__ Scratch<uint64_t, kLong> scratch;
  const auto team = Team<kLong>::of(p.rows, p.cols);
  const int64_t at = team.row * p.cols;
  const uint64_t key = team.reduce(scratch, uint64_t{0}, Larger{}, [&](int64_t i) { return key_of(p.x[at + i], i); });
  if (team.leads()) p.index[team.row] = static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

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

void arg_max_rows_cuda(const ArgMaxRowsArgs& args) {
  using namespace rowwise;
  const ArgMaxParams p{args.rows, args.cols, floats_of(args.x), args.index};
  launch_rows("arg_max_rows_cuda", arg_max_kernel<false>, arg_max_kernel<true>, args.rows, args.cols, p);
}

void target_ranks_cuda(const TargetRanksArgs& args) {
  using namespace rowwise;
  const RankParams p{args.rows, args.cols, floats_of(args.x), {args.targets, args.ignore, args.flags}, args.rank};
  launch_rows("target_ranks_cuda", target_ranks_kernel<false>, target_ranks_kernel<true>, args.rows, args.cols, p);
}

}  // namespace bitgrad::cuda
