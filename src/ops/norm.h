// Normalisation over the rows of all leading axes (batch norm, one statistic per column) or over all elements (tensor
// norm, one in all).
//   mu, var: two passes, biased;  y = ((x - mu) * (1/sqrt(var + eps))) * gamma + beta
//   gx = ((gy - mean gy) - xhat * mean(gy xhat)) * (gamma * inv);  evaluation: gx = gy * (gamma * inv).
//   docs/numerics.md section 6. x in bf16 is widened into workspace memory, in the backward once more, and y rounded
//   once.
#pragma once

#include "bitgrad/ops/ops.h"

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
// made, nor a mask. Same bits, forward and backward. On the CPU; x fp32.
struct SignOptions {
  std::shared_ptr<const QuantParams> params = {};
  uint32_t* flags = nullptr;
  bool clip = true;  // else identity
};
Var batch_norm_signs(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options,
                     const SignOptions& signs);
void norm_backward(bool per_column, NormSaved& saved, const Tensor& gy, std::span<GradSlot> g);

}  // namespace bitgrad
