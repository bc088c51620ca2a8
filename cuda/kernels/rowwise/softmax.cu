// Family rowwise: softmax and its backward (contracts: kernels/rowwise.h).
#include "bitgrad/base/math.h"
#include "cuda/kernels/rowwise/team.h"

namespace bitgrad::cuda {
namespace rowwise {

struct SoftmaxParams {
  int64_t rows, cols;
  Floats x;
  void* y;
  bool bf16_y;
};

template <bool kLong>
BITGRAD_GLOBAL void softmax_kernel(SoftmaxParams p) {
  __shared__ Scratch<float, kLong> scratch;
  const auto team = Team<kLong>::of(p.rows, p.cols);
  const int64_t at = team.row * p.cols;
  const float top = team.reduce(scratch, -__int_as_float(0x7F800000), Larger{}, [&](int64_t i) { return p.x[at + i]; });
  const float total = team.reduce(scratch, 0.0f, Add{}, [&](int64_t i) {
    const float e = math::exp(p.x[at + i] - top);
    if (!p.bf16_y) static_cast<float*>(p.y)[at + i] = e;
    return e;
  });
  // A bf16 output cannot store e exactly, so it is recomputed.
  team.each([&](int64_t i) {
    const float e = p.bf16_y ? math::exp(p.x[at + i] - top) : static_cast<const float*>(p.y)[at + i];
    maps::store_float(p.y, p.bf16_y, at + i, e / total);
  });
}

struct SoftmaxBackwardParams {
  int64_t rows, cols;
  Floats y, gy;
  float* gx;
};

template <bool kLong>
BITGRAD_GLOBAL void softmax_backward_kernel(SoftmaxBackwardParams p) {
  __shared__ Scratch<float, kLong> scratch;
  const auto team = Team<kLong>::of(p.rows, p.cols);
  const int64_t at = team.row * p.cols;
  const float dot = team.reduce(scratch, 0.0f, Add{}, [&](int64_t i) { return p.gy[at + i] * p.y[at + i]; });
  team.each([&](int64_t i) { p.gx[at + i] = p.y[at + i] * (p.gy[at + i] - dot); });
}

}  // namespace rowwise

void softmax_rows_cuda(const SoftmaxRowsArgs& args) {
  using namespace rowwise;
  refuse_fp64(args.x, "softmax_rows");
  const SoftmaxParams p{args.rows, args.cols, floats_of(args.x), args.y.data, args.y.dtype == dtypes::bf16};
  launch_rows("softmax_rows_cuda", softmax_kernel<false>, softmax_kernel<true>, args.rows, args.cols, p);
}

void softmax_rows_backward_cuda(const SoftmaxRowsBackwardArgs& args) {
  using namespace rowwise;
  refuse_fp64(args.y, "softmax_rows_backward");
  const SoftmaxBackwardParams p{args.rows, args.cols, floats_of(args.y), floats_of(args.gy), values_of(args.gx)};
  launch_rows("softmax_rows_backward_cuda", softmax_backward_kernel<false>, softmax_backward_kernel<true>, args.rows,
              args.cols, p);
}

}  // namespace bitgrad::cuda
