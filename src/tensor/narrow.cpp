#include "tensor/narrow.h"

#include "bitgrad/base/error.h"

namespace bitgrad::detail {

Tensor widened_on_demand(const Tensor& narrow) {
  require(is_narrow(narrow.dtype()) && narrow.contiguous() && narrow.device().is_cpu() && !narrow.quant(),
          "widened_on_demand", "got ", narrow, ", expected a dense fp16 or bf16 tensor without scales on the CPU");
  Tensor wide = Tensor::external(nullptr, narrow.shape(), dtypes::fp32, nullptr);
  wide.attach_layout(narrow);
  wide.keep_only(layouts::canonical);
  return wide;
}

Tensor narrow_of(const Tensor& t) {
  if (t.dtype() != dtypes::fp32 || !t.defined() || t.present()) return {};
  for (const Tensor& other : t.attached_layouts())
    if (is_narrow(other.dtype())) return other;
  return {};
}

}  // namespace bitgrad::detail
