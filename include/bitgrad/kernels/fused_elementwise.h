// Sequences of elementwise kernels in one pass, on the CPU. Devices run the sequence, or a map (kernels/map/list.h).
#pragma once

#include <cstdint>

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/max_pool_gradient.h"
#include "bitgrad/kernels/reduce.h"

namespace bitgrad::kernels::cpu {

// gx = g * (max(1, t) * (1 - tanh^2(t x))), plus `sum` where there is one, which may be gx; each operation is rounded
// once, with the bits of map TanhGradient. gx may be g. IR-Net: Qin et al. 2020, arXiv 1909.10788, eq. 11.
void tanh_gradient(int64_t n, float t, const float* x, const float* g, const float* sum, float* gx);

// y = hardtanh(a + b), with the bits of add and unary_forward one after the other; y may be a or b. `inside` (nullptr:
// not wanted) gets (n+63)/64 words whose bit i says that -1 <= a[i] + b[i] <= 1, where the derivative is 1; pad 0.
void add_hardtanh(int64_t n, const float* a, const float* b, float* y, uint64_t* inside);
// gx[i] = g[i] * (bit i ? 1 : 0): unary_backward of hardtanh. gx may be g.
void times_bits(int64_t n, const float* g, const uint64_t* mask, float* gx);

// y = hardtanh(norm + b), norm the y of normalize(args) of one number a column, which is not made; args.y: y. Bits and
// `inside` are those of add_hardtanh. Where normalize_joins says so of args.rows and args.cols.
bool normalize_joins(int64_t rows, int64_t cols);
void normalize_add_hardtanh(const NormalizeArgs& args, const float* b, uint64_t* inside);
// masked[i] = gy[i] * (bit i ? 1 : 0), as times_bits, which may be gy; and norm_sums of that.
void norm_sums_of_bits(const NormSumsArgs& args, const uint64_t* bits, float* masked);

// norm_sums, and normalize_backward, of the gradient that max_pool_gradient(pool) gives, made block by block; that is
// not in memory as a whole. args.gy is not read; one number a column.
void norm_sums_of_pool(const NormSumsArgs& args, const MaxPoolGradientArgs& pool);
void normalize_backward_of_pool(const NormalizeBackwardArgs& args, const MaxPoolGradientArgs& pool);

}  // namespace bitgrad::kernels::cpu
