// Shared by the losses over logits [n, classes] and labels.
#pragma once

#include "bitgrad/kernels/reduce.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {

inline void check_logits(std::string_view op, const Tensor& y, std::span<const int32_t> labels) {
  require_float(op, "logits", y);
  require(y.shape().rank() == 2 && y.cols() > 0, op, "logits must be [n, classes], got ", y);
  require(static_cast<int64_t>(labels.size()) == y.rows(), op, "logits ", y, " have ", y.rows(), " rows, got ",
          labels.size(), " labels");
  for (size_t i = 0; i < labels.size(); ++i)
    require(labels[i] >= 0 && labels[i] < y.cols(), op, "label ", i, " is ", labels[i], ", allowed are 0 .. ",
            y.cols() - 1);
}

// sum of all terms / divisor, as a scalar tensor.
template <typename T>
Tensor loss_total(const Tensor& terms, T divisor) {
  T total = 0;
  if constexpr (sizeof(T) == 4)
    total = sum(terms.as<float>(), terms.numel());
  else
    for (int64_t i = 0; i < terms.numel(); ++i) total += terms.as<T>()[i];
  return Tensor::scalar(static_cast<double>(total / divisor), terms.dtype());
}

}  // namespace bitgrad
