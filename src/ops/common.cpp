#include "ops/common.h"

#include "bitgrad/base/error.h"
#include "bitgrad/kernels/elementwise.h"

namespace bitgrad {

Tensor wide(const Tensor& gradient) {
  if (gradient.dtype() != dtypes::bf16) return gradient;
  Tensor out = Tensor::empty(gradient.shape(), dtypes::fp32);
  from_bf16(gradient.numel(), gradient.as<uint16_t>(), out.as<float>());
  return out;
}

void require_float(std::string_view op, std::string_view what, const Tensor& x) {
  require((x.dtype() == dtypes::fp32 || x.dtype() == dtypes::fp64) && !x.quant(), op, what,
          " must be fp32 (or fp64), got ", x, x.dtype().is_float() ? "" : ". Dequantize it first");
  require(x.contiguous(), op, what, " must be dense, got a view of ", x);
}

void require_same(std::string_view op, const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype(), op, "operands differ: got ", a, " and ", b);
}

}  // namespace bitgrad
