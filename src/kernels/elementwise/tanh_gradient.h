// Map TanhGradient (quant/map/gradients.h) on the CPU, in vectors.
#pragma once

#include <cstdint>

namespace bitgrad::kernels::cpu {

// gx = g * (max(1, t) * (1 - tanh^2(t x))), plus `sum` where there is one, which may be gx; each operation is rounded
// once. gx may be g. IR-Net: Qin et al. 2020, arXiv 1909.10788, eq. 11.
void tanh_gradient(int64_t n, float t, const float* x, const float* g, const float* sum, float* gx);

}  // namespace bitgrad::kernels::cpu
