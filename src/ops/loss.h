// Shared by losses and metrics: labels and targets of logits [.., classes], or values; and totals over them.
// docs/numerics.md sections 6 and 10.
#pragma once

#include <functional>
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

// Dense int32 with the shape of the logits without their last axis; each a class or `ignore`.
class ClassTargets {
 public:
  // logits: fp32, bf16 or fp64. Throws Error for what is already known to be invalid; names `op` and both tensors.
  ClassTargets(std::string_view op, const Tensor& logits, const Tensor& targets, int32_t ignore);
  // nullptr if the targets were checked on the host.
  uint32_t* flags() const { return flag_ ? flag_->word() : nullptr; }
  // Call after the kernel that ORs into flags().
  void check(std::string_view op) const;

 private:
  Tensor targets_;
  int64_t classes_;
  int32_t ignore_;
  std::optional<FlagWord> flag_;
};

// Number of targets that are not `ignore`: int64 [].
Tensor count_targets(const Tensor& targets, int32_t ignore);
// Total of n elements, int64 or fp64 []: `first` computes one value per piece of maps::kTotalPiece elements, then
// pieces of those are summed until one is left.
Tensor total_of_pieces(DType dtype, int64_t n, const std::function<void(void* out, int64_t pieces)>& first);

// Checks inputs of element-wise losses: y and target of equal shape; target fp32 or bf16, or fp64 if y is fp64.
void require_targets_like(std::string_view op, const Tensor& y, const Tensor& target);

// Sum of all terms / divisor, as a scalar tensor.
Tensor loss_total(const Tensor& terms, double divisor);
// gx = (gy * factor) * kept, where gy has one element.
Tensor loss_gradient(const Tensor& gy, double factor, const Tensor& kept);

// A loss whose forward keeps its slope: gx = gy * times / divisor * slope, the quotient in the precision of the slope.
struct SlopeLoss {
  struct Saved {
    Tensor slope;
    double times = 1, divisor = 1;
  };
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g);
};

}  // namespace bitgrad
