// Family elementwise: the normalization of batch norm and tensor norm, and its backward (contracts:
// kernels/elementwise.h).
#include "cuda/device/vectors.h"
#include "cuda/kernels/contracts.h"
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

// from and to: p.x and p.y by their element type.
template <int N, typename T>
BITGRAD_GLOBAL void normalize_kernel(NormalizeArgs p, const T* from, T* to) {
  const int64_t n = p.rows * p.cols;
  for (int64_t i = N * thread_index(); i < n; i += N * thread_count()) {
    const int64_t col = p.column_step == 0 ? 0 : cell_of(i, p.cols).col;
    const Pack<float, N> x = load_floats<N>(from + i);
    const Pack<float, N> mean = of_columns<N>(p.mean, col, p.column_step),
                         inv = of_columns<N>(p.inv, col, p.column_step);
    const Pack<float, N> gamma = of_columns<N>(p.gamma, col, p.column_step);
    const Pack<float, N> beta = of_columns<N>(p.beta, col, p.column_step);
    Pack<float, N> y;
    for (int k = 0; k < N; ++k) y.v[k] = ((x.v[k] - mean.v[k]) * inv.v[k]) * gamma.v[k] + beta.v[k];
    store_floats<N>(to + i, y);
  }
}

template <int N, typename X, typename G, typename Gx>
BITGRAD_GLOBAL void normalize_backward_kernel(NormalizeBackwardArgs p, const X* of_x, const G* of_gy, Gx* to) {
  const int64_t n = p.rows * p.cols, step = p.column_step;
  for (int64_t i = N * thread_index(); i < n; i += N * thread_count()) {
    const int64_t col = step == 0 ? 0 : cell_of(i, p.cols).col;
    const Pack<float, N> x = load_floats<N>(of_x + i), gy = load_floats<N>(of_gy + i);
    const Pack<float, N> mean = of_columns<N>(p.mean, col, step), inv = of_columns<N>(p.inv, col, step);
    const Pack<float, N> gamma = of_columns<N>(p.gamma, col, step), mg = of_columns<N>(p.mean_gy, col, step);
    const Pack<float, N> mgx = of_columns<N>(p.mean_gy_xhat, col, step);
    Pack<float, N> gx;
    for (int k = 0; k < N; ++k) {
      const float h = (x.v[k] - mean.v[k]) * inv.v[k];
      gx.v[k] = ((gy.v[k] - mg.v[k]) - h * mgx.v[k]) * (gamma.v[k] * inv.v[k]);
    }
    store_floats<N>(to + i, gx);
  }
}

template <typename... P>
bool lie_on_four(const P*... arrays) {
  return (lies_on<4>(arrays) && ...);
}

// Whether the values of columns allow loading four adjacent elements together: rows and all arrays are aligned to four.
// With one value for all columns, row boundaries do not matter, but the total must be a multiple of four.
template <typename Args, typename... P>
bool columns_by_four(const Args& p, const P*... of_columns) {
  return p.column_step == 0 ? p.rows * p.cols % 4 == 0 : p.cols % 4 == 0 && lie_on_four(of_columns...);
}

void normalize_cuda(const NormalizeArgs& p) {
  const bool columns = columns_by_four(p, p.mean, p.inv, p.gamma, p.beta);
  with_elements(p.x, [&]<typename T>(const T* x) {
    auto* const y = static_cast<T*>(p.y.data);
    const bool four = columns && lie_on_four(x, y);
    const LaunchShape shape = cover(ceil_div(p.rows * p.cols, four ? 4 : 1), "normalize_cuda");
    launch(four ? normalize_kernel<4, T> : normalize_kernel<1, T>, shape, p, x, y);
  });
}

void normalize_backward_cuda(const NormalizeBackwardArgs& p) {
  const bool columns = columns_by_four(p, p.mean, p.inv, p.gamma, p.mean_gy, p.mean_gy_xhat);
  const auto run = [&]<typename X, typename G, typename Gx>(const X* x, const G* gy, Gx* gx) {
    const bool four = columns && lie_on_four(x, gy, gx);
    const LaunchShape shape = cover(ceil_div(p.rows * p.cols, four ? 4 : 1), "normalize_backward_cuda");
    launch(four ? normalize_backward_kernel<4, X, G, Gx> : normalize_backward_kernel<1, X, G, Gx>, shape, p, x, gy, gx);
  };
  with_elements(p.x, [&](const auto* x) {
    with_elements(p.gy, [&](const auto* gy) { with_elements(p.gx, [&](auto* gx) { run(x, gy, gx); }); });
  });
}

}  // namespace bitgrad::cuda
