// The loops of first_layer.h over vectors of 16 lanes. This header is included inside a target region: no std:: here.
#pragma once

#include "kernels/conv/first_layer/first_layer.h"

namespace bitgrad::kernels::conv {

template <typename Lanes>
struct FewLoops {
  using F = typename Lanes::F;

  template <int kWindows>
  [[gnu::always_inline]] static void few_windows(const FewRow& r, int64_t first) {
    F sums[kWindows];
#pragma GCC unroll 8
    for (int p = 0; p < kWindows; ++p) sums[p] = Lanes::zero();
    const float* w = r.weights;
    for (int64_t t = 0; t < r.taps; ++t) {
      const float* x = r.lines[t] + first * r.pixel;
      for (int64_t k = 0; k < r.run; ++k, ++x, w += kFewLanes) {
        const F weights = Lanes::load(w);
#pragma GCC unroll 8
        for (int p = 0; p < kWindows; ++p) sums[p] = Lanes::fma(Lanes::all(x + p * r.pixel), weights, sums[p]);
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < kWindows; ++p) {
      const int64_t at = (first + p) * r.ldc;
      if (r.integers) {
        Lanes::store_integers(static_cast<int32_t*>(r.c) + at, sums[p], r.outputs);
        continue;
      }
      F y = Lanes::mul(sums[p], Lanes::load(r.scale));
      if (r.bias != nullptr) y = Lanes::add(y, Lanes::load(r.bias));
      Lanes::store_part(static_cast<float*>(r.c) + at, y, r.outputs);
    }
  }
  static void row(const FewRow& r) {
    int64_t first = 0;
    for (; first + 8 <= r.windows; first += 8) few_windows<8>(r, first);
    if (first == r.windows) return;
    if (r.windows >= 8) return few_windows<8>(r, r.windows - 8);  // recomputes some of them
    for (; first < r.windows; ++first) few_windows<1>(r, first);
  }

  static constexpr int64_t kAhead = 1024;  // floats of gy to prefetch ahead
  template <int kLines, int kRun>
  static void weight_sums(const FewWeights& call) {
    F sums[kLines][kRun];
#pragma GCC unroll 3
    for (int y = 0; y < kLines; ++y)
#pragma GCC unroll 9
      for (int k = 0; k < kRun; ++k) sums[y][k] = Lanes::load(call.sums + y * call.sums_line + k * kFewLanes);
    const float one = 1.0f;
    const F fold = Lanes::all(call.fold == nullptr ? &one : call.fold);
    const int64_t line = call.line;
    for (int64_t row = 0; row < call.rows; ++row) {
      const float *x = call.x + row * call.row, *gy = call.gy + row * call.gy_row;
      for (int64_t m = 0; m < call.windows; ++m, x += call.pixel, gy += call.gy_window) {
        Lanes::fetch(gy + kAhead);
        F g = Lanes::mul(Lanes::load_part(gy, call.outputs), fold);
        if (call.bf16) g = Lanes::rounded(g);
#pragma GCC unroll 3
        for (int y = 0; y < kLines; ++y)
#pragma GCC unroll 9
          for (int k = 0; k < kRun; ++k) sums[y][k] = Lanes::fma(Lanes::all(x + y * line + k), g, sums[y][k]);
      }
    }
#pragma GCC unroll 3
    for (int y = 0; y < kLines; ++y)
#pragma GCC unroll 9
      for (int k = 0; k < kRun; ++k) Lanes::store(call.sums + y * call.sums_line + k * kFewLanes, sums[y][k]);
  }

  using Sums = void (*)(const FewWeights& call);
  static Sums sums_of(int64_t lines, int64_t run) {
    static constexpr Sums kOne[9] = {&weight_sums<1, 1>, &weight_sums<1, 2>, &weight_sums<1, 3>,
                                     &weight_sums<1, 4>, &weight_sums<1, 5>, &weight_sums<1, 6>,
                                     &weight_sums<1, 7>, &weight_sums<1, 8>, &weight_sums<1, 9>};
    if (lines == 3 && run == 9) return &weight_sums<3, 9>;
    if (lines == 3 && run == 3) return &weight_sums<3, 3>;
    return lines == 1 && run >= 1 && run <= 9 ? kOne[run - 1] : nullptr;
  }
  static bool has_weights(int64_t lines, int64_t run) { return sums_of(lines, run) != nullptr; }
  static void weights(const FewWeights& call) { sums_of(call.lines, call.run)(call); }

  static constexpr FewIsa isa() { return {&row, &has_weights, &weights}; }
};

}  // namespace bitgrad::kernels::conv
