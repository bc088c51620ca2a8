// Targets of losses and metrics: classes for logits [.., classes], or values; and totals over them. docs/numerics.md
// section 10.
#pragma once

#include <functional>
#include <optional>

#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "ops/common.h"

namespace bitgrad {

// Dense int32 with the shape of the logits without their last axis; each a class or `ignore`.
class ClassTargets {
 public:
  // logits: fp32, bf16 or fp64. Throws Error for what is already known to be invalid; names `op` and both tensors.
  ClassTargets(std::string_view op, const Tensor& logits, const Tensor& targets, int32_t ignore);
  const Tensor& tensor() const { return targets_; }
  int32_t ignore() const { return ignore_; }
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

}  // namespace bitgrad
