// Family elementwise: the normalization of batch norm and tensor norm, and its backward (contracts:
// bitgrad/kernels/elementwise.h).
#include "cuda/device/vectors.h"
#include "cuda/kernels/elementwise/elementwise_cuda.h"
#include "cuda/kernels/launch.h"

namespace bitgrad::cuda {

// N adjacent per-column values; the single value for all columns if step is 0.
template <int N>
BITGRAD_DEVICE inline Pack<float, N> of_columns(const float* p, int64_t col, int64_t step) {
  if (step != 0) return load_pack<N>(p + col);
  Pack<float, N> out;
  for (int k = 0; k < N; ++k) out.v[k] = *p;
  return out;
}

template <int N>
BITGRAD_GLOBAL void normalize_kernel(NormalizeArgs p) {
  const int64_t n = p.rows * p.cols;
  for (int64_t i = N * thread_index(); i < n; i += N * thread_count()) {
    const int64_t col = p.column_step == 0 ? 0 : cell_of(i, p.cols).col;
    const Pack<float, N> x = load_pack<N>(p.x + i);
    const Pack<float, N> mean = of_columns<N>(p.mean, col, p.column_step),
                         inv = of_columns<N>(p.inv, col, p.column_step);
    const Pack<float, N> gamma = of_columns<N>(p.gamma, col, p.column_step);
    const Pack<float, N> beta = of_columns<N>(p.beta, col, p.column_step);
    Pack<float, N> y;
    for (int k = 0; k < N; ++k) y.v[k] = ((x.v[k] - mean.v[k]) * inv.v[k]) * gamma.v[k] + beta.v[k];
    store_pack<N>(p.y + i, y);
  }
}

template <int N>
BITGRAD_GLOBAL void normalize_backward_kernel(NormalizeBackwardArgs p) {
  const int64_t n = p.rows * p.cols, step = p.column_step;
  for (int64_t i = N * thread_index(); i < n; i += N * thread_count()) {
    const int64_t col = step == 0 ? 0 : cell_of(i, p.cols).col;
    const Pack<float, N> x = load_pack<N>(p.x + i), gy = load_pack<N>(p.gy + i);
    const Pack<float, N> mean = of_columns<N>(p.mean, col, step), inv = of_columns<N>(p.inv, col, step);
    const Pack<float, N> gamma = of_columns<N>(p.gamma, col, step), mg = of_columns<N>(p.mean_gy, col, step);
    const Pack<float, N> mgx = of_columns<N>(p.mean_gy_xhat, col, step);
    Pack<float, N> gx;
    for (int k = 0; k < N; ++k) {
      const float h = (x.v[k] - mean.v[k]) * inv.v[k];
      gx.v[k] = ((gy.v[k] - mg.v[k]) - h * mgx.v[k]) * (gamma.v[k] * inv.v[k]);
    }
    store_pack<N>(p.gx + i, gx);
  }
}

// Whether four adjacent elements can be loaded together: rows and all arrays are aligned to four. With one value for
// all columns, row boundaries do not matter, but the total must be a multiple of four.
template <typename... P>
bool by_four(int64_t rows, int64_t cols, int64_t column_step, const P*... pointers) {
  return (column_step == 0 ? rows * cols : cols) % 4 == 0 && (lies_on<4>(pointers) && ...);
}

void normalize_cuda(const NormalizeArgs& p) {
  const bool columns = p.column_step != 0;
  const float* const mean = columns ? p.mean : nullptr;
  const bool four = by_four(p.rows, p.cols, p.column_step, p.x, p.y, mean, columns ? p.inv : nullptr,
                            columns ? p.gamma : nullptr, columns ? p.beta : nullptr);
  const LaunchShape shape = cover(ceil_div(p.rows * p.cols, four ? 4 : 1), "normalize_cuda");
  launch(four ? normalize_kernel<4> : normalize_kernel<1>, shape, p);
}

void normalize_backward_cuda(const NormalizeBackwardArgs& p) {
  const bool columns = p.column_step != 0;
  const float* const mean = columns ? p.mean : nullptr;
  const bool four =
      by_four(p.rows, p.cols, p.column_step, p.x, p.gy, p.gx, mean, columns ? p.inv : nullptr,
              columns ? p.gamma : nullptr, columns ? p.mean_gy : nullptr, columns ? p.mean_gy_xhat : nullptr);
  const LaunchShape shape = cover(ceil_div(p.rows * p.cols, four ? 4 : 1), "normalize_backward_cuda");
  launch(four ? normalize_backward_kernel<4> : normalize_backward_kernel<1>, shape, p);
}

}  // namespace bitgrad::cuda
