// Newton-Schulz iterations that replace a matrix by its nearest semi-orthogonal one, approximately: U V^T of its
// singular value decomposition U S V^T, with singular values near 1 (0.68 to 1.13 by Jordan's coefficients). Jordan
// 2024, kellerjordan.github.io/posts/muon. docs/numerics.md section 6.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bitgrad/optim/optimizer_spec.h"

namespace bitgrad::detail {

struct NewtonSchulz {
  std::vector<std::array<float, 3>> iterations = {};  // a, b, c
  float norm_factor = 1;                              // by which the norm is multiplied before the first iteration
  NsDType dtype = NsDType::kFp32;
};
// Throws Error for a number of iterations or triples out of range.
NewtonSchulz newton_schulz(const OptimizerSpec& spec);

// x: `count` matrices fp32 [rows, cols], dense, one after another, on the current device; replaced. With k = min(rows,
// cols) and n = max(rows, cols):
//   X = X / (norm(X) * norm_factor + 1e-7)
//   per iteration: S = X X^T [k, k] (X^T X if rows > cols);  X = (a I + b S + c S S) X
// Where n >= 2k, in fp32, the iterations are those of the Gram matrix: S = X X^T once, Q = I; per iteration P = a I + b
// S + c S S, Q = P Q, S = P S P; then X = Q X. A product that is symmetric is computed below its diagonal and mirrored.
// Which form is used depends on shape and dtype alone. Workspace: one copy of x (of half its size in bf16) and 4 count
// k k values. A matrix of zeros stays one. Products in bf16 are not for strict mode (Optimizer::check).
void orthogonalize(const NewtonSchulz& how, int64_t count, int64_t rows, int64_t cols, float* x);

// Multiplications of one call.
int64_t orthogonalize_macs(const NewtonSchulz& how, int64_t count, int64_t rows, int64_t cols);

}  // namespace bitgrad::detail
