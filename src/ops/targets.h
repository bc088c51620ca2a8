// Targets of losses and metrics: classes of logits [.., classes], values; and totals over them. docs/numerics.md
// section 10.
#pragma once

#include <functional>
#include <optional>

#include "bitgrad/kernels/flag.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {

// Dense int32 of the logits' shape without its last axis, each a class or `ignore`.
class ClassTargets {
 public:
  // logits: fp32 or bf16 (or fp64). Throws Error for what is known to be wrong now; `op` and both tensors are named.
  ClassTargets(std::string_view op, const Tensor& logits, const Tensor& targets, int32_t ignore);
  const Tensor& tensor() const { return targets_; }
  int32_t ignore() const { return ignore_; }
  // nullptr: they were checked on the host.
  uint32_t* flags() const { return flag_ ? flag_->word() : nullptr; }
  // After the kernel that ORs into flags().
  void check(std::string_view op) const;

 private:
  Tensor targets_;
  int64_t classes_;
  int32_t ignore_;
  std::optional<FlagWord> flag_;
};

// How many targets are not `ignore`: int64 [].
Tensor count_targets(const Tensor& targets, int32_t ignore);
// A total of n elements, int64 or fp64 []: `first` fills one number for each piece of maps::kTotalPiece elements, then
// pieces of those are added until one is left.
Tensor total_of_pieces(DType dtype, int64_t n, const std::function<void(void* out, int64_t pieces)>& first);

// What losses over elements take: y and target of one shape; target fp32 or bf16, of an fp64 y fp64.
void require_targets_like(std::string_view op, const Tensor& y, const Tensor& target);

}  // namespace bitgrad
