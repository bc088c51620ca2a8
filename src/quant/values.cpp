#include "quant/values.h"

#include "kernels/elementwise.h"

namespace bitgrad {

Tensor widened(const Tensor& x) {
  if (x.dtype() != dtypes::bf16) return x;
  const Tensor from = x.contiguous() ? x : x.clone(MemoryKind::kWorkspace);
  Tensor out = Tensor::empty(x.shape(), dtypes::fp32, MemoryKind::kWorkspace);
  kernels::from_bf16(from.numel(), from.as<uint16_t>(), out.as<float>());
  return out;
}

}  // namespace bitgrad
