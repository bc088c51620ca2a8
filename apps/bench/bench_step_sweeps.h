// The passes over memory that a float simulation of quantized training makes besides its products, each with one read
// and one write, vectorized and parallel. The rival of bench_step consists of them. Values are small, without
// denormals.
#pragma once

#include <cstdint>

namespace bitgrad::bench::sweeps {

// Fake quantization of [rows, cols]: +-1 by the sign (qmax 0), or s * clamp(rint(x / s), -qmax, qmax) with s = max abs
// of the row / qmax. The result is fp32, or rounded to bf16.
void fake_quantize(int64_t rows, int64_t cols, int qmax, const float* x, float* out);
void fake_quantize(int64_t rows, int64_t cols, int qmax, const float* x, uint16_t* out);
void to_bf16(int64_t n, const float* x, uint16_t* out);
// Sets g to 0 where abs x > 1.
void clip_mask(int64_t n, const float* x, float* g);
double sum_of_squares(int64_t n, const float* g);
// Adam (Kingma and Ba 2014, arXiv 1412.6980) with the gradient factor * g. w is clamped to [-1, 1].
struct AdamStep {
  float lr, factor, c1, c2;  // c1, c2: 1 / (1 - beta^t)
};
void adam(int64_t n, const AdamStep& step, const float* g, float* w, float* m, float* v);

}  // namespace bitgrad::bench::sweeps
