// Sequences of elementwise kernels fused into one pass, fp32 and CPU only. Devices run the sequence or a map
// (kernels/map/list.h).
#pragma once

#include <cstdint>

#include "kernels/conv.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace bitgrad::kernels::cpu {

// gx = g * (max(1, t) * (1 - tanh^2(t x))), plus `sum` if given (which may alias gx). Each operation is rounded once;
// same bits as map TanhGradient. gx may alias g. IR-Net: Qin et al. 2020, arXiv 1909.10788, eq. 11.
void tanh_gradient(int64_t n, float t, const float* x, const float* g, const float* sum, float* gx);

// y = hardtanh(a + b), with the bits of add followed by unary_forward; y may alias a or b. `inside` (optional) receives
// (n+63)/64 words: bit i is set if -1 <= a[i] + b[i] <= 1, where the derivative is 1. Pad bits are 0.
void add_hardtanh(int64_t n, const float* a, const float* b, float* y, uint64_t* inside);
// gx[i] = g[i] * (bit i ? 1 : 0): the backward of hardtanh. gx may alias g.
void times_bits(int64_t n, const float* g, const uint64_t* mask, float* gx);

// y = hardtanh(norm + b), where norm is what normalize(args) computes with per-column parameters; norm is not
// materialized, and y is args.y. Same bits and `inside` as add_hardtanh. Requires normalize_joins().
bool normalize_joins(int64_t rows, int64_t cols);
void normalize_add_hardtanh(const NormalizeArgs& args, const float* b, uint64_t* inside);
// masked[i] = gy[i] * (bit i ? 1 : 0) as times_bits, and norm_sums of it. masked may alias gy.
void norm_sums_of_bits(const NormSumsArgs& args, const uint64_t* bits, float* masked);

// norm_sums and normalize_backward of the gradient that max_pool_gradient(pool) computes, which is produced block by
// block and never materialized. args.gy is not read; per-column parameters only.
void norm_sums_of_pool(const NormSumsArgs& args, const MaxPoolGradientArgs& pool);
void normalize_backward_of_pool(const NormalizeBackwardArgs& args, const MaxPoolGradientArgs& pool);

}  // namespace bitgrad::kernels::cpu
