// Normalization over the rows of all leading axes (batch norm, one statistic per column) or over all elements (tensor
// norm, a single statistic).
//   mu, var: two passes, biased;  y = ((x - mu) * (1/sqrt(var + eps))) * gamma + beta
//   gx = ((gy - mean gy) - xhat * mean(gy xhat)) * (gamma * inv);  evaluation: gx = gy * (gamma * inv).
//   docs/numerics.md section 6. y has the dtype of x; bf16 is widened where it is read and rounded once.
#pragma once

#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace bitgrad {

struct NormSaved {
  Tensor x, mean, inv, gamma;
  bool training = true;
  Tensor beta = {};  // defined if y became signs under rule clip: gy counts where abs y <= 1
};

// Throws Error unless gamma and beta (in[1], in[2]) and the running statistics match x = in[0].
void check_norm(std::string_view op, bool per_column, std::span<const Tensor> in, const NormOptions& options);
// The bint1 codes, with `params`, of y >= 0 for the y of batch_norm (per_column) or tensor_norm in evaluation, without
// materializing y. x: fp32.
// Sets kFlagNonFinite in `flags` if y is NaN or Inf; the codes of such elements are raw 0.
Tensor norm_signs(std::string_view op, bool per_column, std::span<const Tensor> in, const NormOptions& options,
                  std::shared_ptr<const QuantParams> params, uint32_t* flags);
// batch_norm followed by quantize with scheme binary (no alpha; rule clip or identity), fused: neither y nor a mask is
// materialized. With a pool, max_pool of those codes is fused too, and the gradient of the signs is not materialized.
// Bits match the separate ops, forward and backward. CPU only; x is fp32.
struct SignOptions {
  std::shared_ptr<const QuantParams> params = {};
  uint32_t* flags = nullptr;
  bool clip = true;                   // rule clip; false: rule identity
  const PoolOptions* pool = nullptr;  // x [n,h,w,c]
};
Var batch_norm_signs(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options,
                     const SignOptions& signs);
void norm_backward(bool per_column, NormSaved& saved, const Tensor& gy, std::span<GradSlot> g);
// Batch norm of int32 with a scale per tensor or channel(1): y fp32.
Var integer_batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);

// batch_norm followed by add_hardtanh with b, fused: the output of the norm is not materialized. Bits match the
// separate ops, forward and backward. fp32 tensors of equal shape, on the CPU; valid only if normalizes_before_hardtanh
// returns true.
bool normalizes_before_hardtanh(const Var& x, const Var& b);
Var batch_norm_add_hardtanh(const Var& x, const Var& gamma, const Var& beta, const Var& b, const NormOptions& options);

namespace detail {

struct NormSums {
  Tensor gy, gy_xhat;  // sum of gy, and sum of gy * xhat
};
// Mean and 1/sqrt(var + eps), from the batch or from the running statistics.
void norm_statistics(bool per_column, const Tensor& x, const NormOptions& options, Tensor& mean, Tensor& inv);
// For fp32 and bf16; y is left unset.
kernels::NormalizeArgs normalize_args(bool per_column, std::span<const Tensor> in, const Tensor& mean,
                                      const Tensor& inv);
// For fp32 and bf16; gy is left unset.
kernels::NormSumsArgs norm_sums_args(bool per_column, const NormSaved& s, const NormSums& sums);
// Contribution of the sums to gx: in training the means, which overwrite the sums; otherwise zeros.
NormSums norm_means(bool per_column, const NormSaved& s, const NormSums& sums);
kernels::NormalizeBackwardArgs normalize_backward_args(bool per_column, const NormSaved& s, const NormSums& means,
                                                       const Tensor& gx);
// gx from gy and its sums, each fp32 or bf16; gx may alias gy if their dtypes are equal.
void norm_input_gradient(bool per_column, const NormSaved& s, const Tensor& gy, const NormSums& sums, const Tensor& gx);

}  // namespace detail

}  // namespace bitgrad
