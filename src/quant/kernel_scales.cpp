#include "quant/kernel_scales.h"

namespace bitgrad::detail {

KernelScales::KernelScales(const CodeRange& range, const Tensor& codes_or_numbers)
    : map_(codes_or_numbers.scale_map()) {
  if (!range.from_lowest) return;
  ensure(map_.scale != nullptr && map_.offset != nullptr, "quantize", "scheme ", codes_or_numbers.quant()->scheme,
         " has a scale and an offset");
  const int64_t count = codes_or_numbers.quant()->scale->numel();
  lowest_ = Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace);
  zero_ = Tensor::empty({count}, dtypes::int32, MemoryKind::kWorkspace);
  for (int64_t j = 0; j < count; ++j) {
    lowest_.as<float>()[j] = map_.offset[j] + map_.scale[j] * static_cast<float>(range.lo);
    zero_.as<int32_t>()[j] = static_cast<int32_t>(range.lo);
  }
  map_.offset = lowest_.as<float>();
  map_.zero = zero_.as<int32_t>();
}

}  // namespace bitgrad::detail
