#include "quant/kernel_scales.h"

#include "bitgrad/base/error.h"
#include "kernels/map/fill.h"
#include "quant/map/scales.h"

namespace bitgrad::detail {

KernelScales::KernelScales(const CodeRange& range, const Tensor& codes_or_numbers)
    : map_(codes_or_numbers.scale_map()) {
  if (range.from_lowest) from_lowest(range, *codes_or_numbers.quant());
  if (range.from_statistic) {
    const QuantParams& params = *codes_or_numbers.quant();
    require(params.statistic != nullptr, params.scheme, "the params of ", codes_or_numbers,
            " lack the scheme's statistic. Fit them to values.");
    map_.offset = params.statistic->as<float>();
  }
  if (range.rule == CodeRule::kTimes || range.rule == CodeRule::kTanh) {
    const int64_t count = map_.scale == nullptr ? 1 : codes_or_numbers.quant()->scale->numel();
    steps_ = Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace);
    run_map(maps::FillFloats{static_cast<float>(range.hi), steps_.as<float>()}, count);
    map_.scale = steps_.as<float>();
    if (!range.from_statistic) map_.offset = nullptr;
  }
}

void KernelScales::from_lowest(const CodeRange& range, const QuantParams& params) {
  ensure(map_.scale != nullptr && map_.offset != nullptr, "quantize", "scheme ", params.scheme,
         " has a scale and an offset");
  const int64_t count = params.scale->numel();
  lowest_ = Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace);
  run_map(maps::LowestNumbers{map_.scale, map_.offset, static_cast<float>(range.lo), lowest_.as<float>()}, count);
  map_.offset = lowest_.as<float>();
  if (range.lo == 0) return;
  zero_ = Tensor::empty({count}, dtypes::int32, MemoryKind::kWorkspace);
  run_map(maps::FillInts{static_cast<int32_t>(range.lo), zero_.as<int32_t>()}, count);
  map_.zero = zero_.as<int32_t>();
}

}  // namespace bitgrad::detail
