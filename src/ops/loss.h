// Shared by the losses over logits [.., classes] and labels.
#pragma once

#include <optional>

#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "ops/common.h"

namespace bitgrad {

// Labels [..] readable by kernels. Every label is a valid class unless a bit of `flags` gets set.
class CheckedLabels {
 public:
  // logits: fp32 or fp64 [.., classes]; labels: dense int32 on the current device, one per row of logits. Throws Error
  // for a label already known to be invalid; the message names `op` and `logits`.
  CheckedLabels(std::string_view op, const Tensor& logits, const Tensor& labels);
  const int32_t* data() const { return labels_.as<int32_t>(); }
  // nullptr if the labels were checked on the host.
  uint32_t* flags() const { return flag_ ? flag_->word() : nullptr; }
  // Call after the kernel that ORs into flags().
  void check(std::string_view op, const Tensor& logits) const;

 private:
  Tensor labels_;
  std::optional<FlagWord> flag_;
};

// Host labels as a tensor [n] on the current device, checked as far as they are known to belong to `logits`.
Tensor labels_of(std::string_view op, const Tensor& logits, std::span<const int32_t> labels);

// Sum of all terms / divisor, as a scalar tensor.
Tensor loss_total(const Tensor& terms, double divisor);
// gx = (gy * factor) * kept, where gy has one element.
Tensor loss_gradient(const Tensor& gy, double factor, const Tensor& kept);

}  // namespace bitgrad
