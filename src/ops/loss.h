// Shared by the losses over logits [.., classes] and labels.
#pragma once

#include <optional>

#include "bitgrad/kernels/flag.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {

// Labels [..] where kernels may read them, each a class unless `flags` gets a bit.
class CheckedLabels {
 public:
  // logits: fp32 (fp64) [.., classes]; labels: dense int32 on the current device, one for each row of logits. Throws
  // Error for a label that is known to be no class; `op` and `logits` are named.
  CheckedLabels(std::string_view op, const Tensor& logits, const Tensor& labels);
  const int32_t* data() const { return labels_.as<int32_t>(); }
  // nullptr: they were checked on the host.
  uint32_t* flags() const { return flag_ ? flag_->word() : nullptr; }
  // After the kernel that ORs into flags().
  void check(std::string_view op, const Tensor& logits) const;

 private:
  Tensor labels_;
  std::optional<FlagWord> flag_;
};

// Labels of the host as a tensor [n] of the current device, checked as far as they are known to belong to `logits`.
Tensor labels_of(std::string_view op, const Tensor& logits, std::span<const int32_t> labels);

// sum of all terms / divisor, as a scalar tensor.
Tensor loss_total(const Tensor& terms, double divisor);
// gx = (gy * factor) * kept; gy of one element.
Tensor loss_gradient(const Tensor& gy, double factor, const Tensor& kept);

}  // namespace bitgrad
