// Shared by the losses over logits [n, classes] and labels.
#pragma once

#include <optional>

#include "bitgrad/kernels/flag.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {

// Labels as they were given: on the host, or in a tensor.
struct Labels {
  std::span<const int32_t> host;
  Tensor tensor;  // undefined: `host` has them
};

// Labels [n] where kernels may read them, each a class unless `flags` gets a bit.
class CheckedLabels {
 public:
  // logits: fp32 (fp64) [n, classes]. Throws Error for a label that is known to be no class; `op` and `logits` are
  // named.
  CheckedLabels(std::string_view op, const Tensor& logits, const Labels& labels);
  const int32_t* data() const { return data_; }
  // nullptr: they were checked on the host.
  uint32_t* flags() const { return flag_ ? flag_->word() : nullptr; }
  // After the kernel that ORs into flags().
  void check(std::string_view op, const Tensor& logits) const;

 private:
  Tensor held_;
  const int32_t* data_ = nullptr;
  std::optional<FlagWord> flag_;
};

// sum of all terms / divisor, as a scalar tensor.
Tensor loss_total(const Tensor& terms, double divisor);
// gx = (gy * factor) * kept; gy of one element.
Tensor loss_gradient(const Tensor& gy, double factor, const Tensor& kept);

}  // namespace bitgrad
