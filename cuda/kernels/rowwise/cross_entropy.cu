// Family rowwise: softmax cross-entropy with integer targets, and its gradient (contracts: kernels/rowwise.h).
#include "bitgrad/base/math.h"
#include "cuda/kernels/rowwise/team.h"

namespace bitgrad::cuda {
namespace rowwise {

struct CrossEntropyParams {
  int64_t rows, cols;
  Floats x;
  Targets targets;
  float *loss, *top, *total;
};

template <bool kLong>
BITGRAD_GLOBAL void cross_entropy_kernel(CrossEntropyParams p) {
  __shared__ Scratch<float, kLong> scratch;
  auto team = Team<kLong>::of(p.rows, p.cols);
  const int64_t at = team.row * p.cols;
  const bool ignored = !team.live || p.targets.ignored(team.row), leads = team.leads();
  if (leads && ignored) {
    p.loss[team.row] = p.top[team.row] = 0.0f;
    p.total[team.row] = 1.0f;
  }
  if (kLong && ignored) return;  // the whole block exits; a short row must stay for its warp's shuffles
  team.live = !ignored;
  const float top = team.reduce(scratch, -__int_as_float(0x7F800000), Larger{}, [&](int64_t i) { return p.x[at + i]; });
  const float total = team.reduce(scratch, 0.0f, Add{}, [&](int64_t i) { return math::exp(p.x[at + i] - top); });
  if (!leads || ignored) return;
  p.top[team.row] = top;
  p.total[team.row] = total;
  p.loss[team.row] = math::log(total) - (p.x[at + p.targets.of(team.row, p.cols)] - top);
}

struct CrossEntropyBackwardParams {
  int64_t rows, cols;
  Floats x;
  Targets targets;
  const float *top, *total, *factor;
  float* gx;
};

template <bool kLong>
BITGRAD_GLOBAL void cross_entropy_backward_kernel(CrossEntropyBackwardParams p) {
  const auto team = Team<kLong>::of(p.rows, p.cols);
  if (!team.live) return;
  const int64_t at = team.row * p.cols;
  if (p.targets.ignored(team.row)) return team.each([&](int64_t i) { p.gx[at + i] = 0.0f; });
  const float top = p.top[team.row], total = p.total[team.row], factor = *p.factor;
  const int64_t label = p.targets.of(team.row, p.cols);
  team.each([&](int64_t i) {
    const float share = math::exp(p.x[at + i] - top) / total;
    p.gx[at + i] = (i == label ? share - 1.0f : share) * factor;
  });
}

}  // namespace rowwise

void cross_entropy_rows_cuda(const CrossEntropyRowsArgs& args) {
  using namespace rowwise;
  refuse_fp64(args.x, "cross_entropy_rows");
  const CrossEntropyParams p{args.rows,
                             args.cols,
                             floats_of(args.x),
                             {args.targets, args.ignore, args.flags},
                             values_of(args.loss),
                             values_of(args.top),
                             values_of(args.total)};
  launch_rows("cross_entropy_rows_cuda", cross_entropy_kernel<false>, cross_entropy_kernel<true>, args.rows, args.cols,
              p);
}

void cross_entropy_rows_backward_cuda(const CrossEntropyRowsBackwardArgs& args) {
  using namespace rowwise;
  refuse_fp64(args.x, "cross_entropy_rows_backward");
  const CrossEntropyBackwardParams p{args.rows,
                                     args.cols,
                                     floats_of(args.x),
                                     {args.targets, args.ignore, nullptr},
                                     values_of(args.top),
                                     values_of(args.total),
                                     values_of(args.factor),
                                     values_of(args.gx)};
  launch_rows("cross_entropy_rows_backward_cuda", cross_entropy_backward_kernel<false>,
              cross_entropy_backward_kernel<true>, args.rows, args.cols, p);
}

}  // namespace bitgrad::cuda
