// Layer norm and RMS norm over the last axis (kernels/rowwise.h). docs/numerics.md section 10.
#pragma once

#include "bitgrad/ops/ops.h"

namespace bitgrad {

struct RowNormSaved {
  Tensor x, gamma, mean, inv;  // mean: only for layer norm
};

// in: x, gamma, and optionally beta. centered: layer norm.
Tensor row_norm_forward(std::string_view op, bool centered, RowNormSaved& saved, std::span<const Tensor> in, float eps);
void row_norm_backward(bool centered, RowNormSaved& saved, const Tensor& gy, std::span<GradSlot> g);

}  // namespace bitgrad
