// Family rowwise: layer norm and RMS norm, and their backward (contracts: kernels/rowwise.h).
#include <cmath>

#include "cuda/kernels/reduce/sums.h"
#include "cuda/kernels/rowwise/team.h"

namespace bitgrad::cuda {
namespace rowwise {

struct NormParams {
  int64_t rows, cols;
  Floats x;
  bool centered;
  float eps;
  const float *gamma, *beta;
  void* y;
  bool bf16_y;
  float *mean, *inv;
};

template <bool kLong>
BITGRAD_GLOBAL void norm_kernel(NormParams p) {
  __shared__ Scratch<float, kLong> scratch;
  const auto team = Team<kLong>::of(p.rows, p.cols);
  const int64_t at = team.row * p.cols;
  const auto count = static_cast<float>(p.cols);
  float mean = 0.0f;
  if (p.centered) mean = team.reduce(scratch, 0.0f, Add{}, [&](int64_t i) { return p.x[at + i]; }) / count;
  const float squares = team.reduce(scratch, 0.0f, Add{}, [&](int64_t i) {
    const float d = p.x[at + i] - mean;
    return d * d;
  });
  const float inv = 1.0f / std::sqrt(squares / count + p.eps);
  if (team.leads()) {
    if (p.centered) p.mean[team.row] = mean;
    p.inv[team.row] = inv;
  }
  team.each([&](int64_t i) {
    const float scaled = ((p.x[at + i] - mean) * inv) * p.gamma[i];
    maps::store_float(p.y, p.bf16_y, at + i, p.beta == nullptr ? scaled : scaled + p.beta[i]);
  });
}

struct NormBackwardParams {
  int64_t rows, cols;
  Floats x, gy;
  bool centered;
  const float *gamma, *mean, *inv;
  float* gx;
};

template <bool kLong>
BITGRAD_GLOBAL void norm_backward_kernel(NormBackwardParams p) {
  __shared__ Scratch<TwoSums, kLong> scratch;
  const auto team = Team<kLong>::of(p.rows, p.cols);
  const int64_t at = team.row * p.cols;
  const float mean = team.live && p.centered ? p.mean[team.row] : 0.0f, inv = team.live ? p.inv[team.row] : 0.0f;
  const TwoSums sums = team.reduce(scratch, TwoSums{0.0f, 0.0f}, Add{}, [&](int64_t i) {
    const float h = p.gy[at + i] * p.gamma[i];
    return TwoSums{h, h * ((p.x[at + i] - mean) * inv)};
  });
  const auto count = static_cast<float>(p.cols);
  const float mean_h = p.centered ? sums.a / count : 0.0f, mean_h_xhat = sums.b / count;
  team.each([&](int64_t i) {
    const float h = p.gy[at + i] * p.gamma[i], xhat = (p.x[at + i] - mean) * inv;
    p.gx[at + i] = ((h - mean_h) - xhat * mean_h_xhat) * inv;
  });
}

// Sums of gy and gy * xhat down the rows (cuda/kernels/reduce/sums.h).
struct ParameterRule {
  using Value = TwoSums;
  struct Center {};
  Floats x, gy;
  const float *mean, *inv;  // per row; mean may be nullptr, meaning 0
  int64_t cols;
  float *ggamma, *gbeta;  // either may be nullptr
  BITGRAD_DEVICE static TwoSums start() { return {0.0f, 0.0f}; }
  BITGRAD_DEVICE static TwoSums join(TwoSums a, TwoSums v) { return a + v; }
  BITGRAD_DEVICE Center center(int64_t) const { return {}; }
  BITGRAD_DEVICE void accumulate(TwoSums& a, int64_t at, Center, bool&) const {
    const int64_t row = cell_of(at, cols).row;
    const float g = gy[at], m = mean == nullptr ? 0.0f : mean[row];
    a = a + TwoSums{g, g * ((x[at] - m) * inv[row])};
  }
  BITGRAD_DEVICE void store(int64_t j, TwoSums a) const {
    if (gbeta != nullptr) gbeta[j] = a.a;
    if (ggamma != nullptr) ggamma[j] = a.b;
  }
  BITGRAD_DEVICE void raise() const {}
};

}  // namespace rowwise

void norm_rows_cuda(const NormRowsArgs& args) {
  using namespace rowwise;
  refuse_fp64(args.x, "norm_rows");
  const NormParams p{args.rows,
                     args.cols,
                     floats_of(args.x),
                     args.centered,
                     args.eps,
                     values_of(args.gamma),
                     values_of(args.beta),
                     args.y.data,
                     args.y.dtype == dtypes::bf16,
                     values_of(args.mean),
                     values_of(args.inv)};
  launch_rows("norm_rows_cuda", norm_kernel<false>, norm_kernel<true>, args.rows, args.cols, p);
}

void norm_rows_backward_cuda(const NormRowsBackwardArgs& args) {
  using namespace rowwise;
  refuse_fp64(args.x, "norm_rows_backward");
  const float* const mean = args.centered ? values_of(args.mean) : nullptr;
  // Run what reads gy first, because gx may overwrite it.
  if (args.ggamma.data != nullptr || args.gbeta.data != nullptr) {
    const ParameterRule rule{floats_of(args.x),      floats_of(args.gy),   mean, values_of(args.inv), args.cols,
                             values_of(args.ggamma), values_of(args.gbeta)};
    sums::run_columns("norm_rows_backward_parameters_cuda", rule, args.rows, args.cols, args.cols);
  }
  if (args.gx.data == nullptr) return;
  const NormBackwardParams p{
      args.rows, args.cols,           floats_of(args.x), floats_of(args.gy), args.centered, values_of(args.gamma),
      mean,      values_of(args.inv), values_of(args.gx)};
  launch_rows("norm_rows_backward_cuda", norm_backward_kernel<false>, norm_backward_kernel<true>, args.rows, args.cols,
              p);
}

}  // namespace bitgrad::cuda
