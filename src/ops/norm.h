// Normalisation over the rows of all leading axes (batch norm, one statistic per column) or over all elements (tensor
// norm, one in all).
//   mu, var: two passes, biased;  y = ((x - mu) * (1/sqrt(var + eps))) * gamma + beta
//   gx = ((gy - mean gy) - xhat * mean(gy xhat)) * (gamma * inv);  evaluation: gx = gy * (gamma * inv).
//   docs/numerics.md section 6. x in bf16 is widened into workspace memory, in the backward once more, and y rounded
//   once.
#pragma once

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/reduce.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"

namespace bitgrad {

struct NormSaved {
  Tensor x, mean, inv, gamma;
  bool training = true;
  Tensor beta = {};  // of the signs of y under rule clip: gy counts where abs y <= 1
};

// Throws Error unless gamma and beta (in[1], in[2]) and the running statistics fit x = in[0].
void check_norm(std::string_view op, bool per_column, std::span<const Tensor> in, const NormOptions& options);
// per_column: batch norm; else tensor norm.
Tensor norm_forward(std::string_view op, bool per_column, NormSaved& saved, std::span<const Tensor> in,
                    const NormOptions& options);
// The bint1 codes, with these params, of norm_forward's y >= 0 in evaluation; y is not made. x: fp32. `flags` gets
// kFlagNonFinite where y is NaN or Inf; those codes are raw 0.
Tensor norm_signs(std::string_view op, bool per_column, std::span<const Tensor> in, const NormOptions& options,
                  std::shared_ptr<const QuantParams> params, uint32_t* flags);
// batch_norm, then the codes of quantize by scheme binary without alpha, rule clip or identity, as one op: y is not
// made, nor a mask. With a pool: and max_pool of those codes; the gradient of the signs is not made. Same bits, forward
// and backward. On the CPU; x fp32.
struct SignOptions {
  std::shared_ptr<const QuantParams> params = {};
  uint32_t* flags = nullptr;
  bool clip = true;                   // else identity
  const PoolOptions* pool = nullptr;  // x [n,h,w,c]
};
Var batch_norm_signs(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options,
                     const SignOptions& signs);
void norm_backward(bool per_column, NormSaved& saved, const Tensor& gy, std::span<GradSlot> g);

// batch_norm, then add_hardtanh of that and b, as one op: the norm's y is not made. Same bits, forward and backward.
// fp32 tensors of one shape, on the CPU; where normalizes_before_hardtanh says so.
bool normalizes_before_hardtanh(const Var& x, const Var& b);
Var batch_norm_add_hardtanh(const Var& x, const Var& gamma, const Var& beta, const Var& b, const NormOptions& options);

namespace detail {

struct NormSums {
  Tensor gy, gy_xhat;  // sum gy, and sum gy * xhat
};
// Mean, and 1/sqrt(var + eps), of the batch or the running ones.
void norm_statistics(bool per_column, const Tensor& x, const NormOptions& options, Tensor& mean, Tensor& inv);
// fp32; without the place of y.
kernels::NormalizeArgs normalize_args(bool per_column, std::span<const Tensor> in, const Tensor& mean,
                                      const Tensor& inv);
// fp32; without the place of gy.
kernels::NormSumsArgs norm_sums_args(bool per_column, const NormSaved& s, const NormSums& sums);
// What of the sums enters gx: means in training, written over the sums; else zeros.
NormSums norm_means(bool per_column, const NormSaved& s, const NormSums& sums);
kernels::NormalizeBackwardArgs normalize_backward_args(bool per_column, const NormSaved& s, const NormSums& means,
                                                       const Tensor& gx);
// gx of gradients gy, whose sums are given; gx may be gy.
void norm_input_gradient(bool per_column, const NormSaved& s, const Tensor& gy, const NormSums& sums, const Tensor& gx);

}  // namespace detail

}  // namespace bitgrad
