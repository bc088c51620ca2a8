// Operands of depthwise convolutions, in the form their kernels read.
#pragma once

#include "kernels/conv.h"
#include "ops/product/windows.h"

namespace bitgrad::detail {

kernels::DepthwiseForm depthwise_form(const ConvForm& form);
// Images [n,h,w,c], with these parameters instead of their own.
kernels::DepthwiseImages depthwise_images(const Tensor& images, const ConvForm& form, const ScaleMap& map);
// A padding pixel in the form the kernels read if pad_value is not 0: pad_value times the scale of `map`; else
// undefined.
Tensor depthwise_pad(const Tensor& image, const ConvForm& form, const ScaleMap& map);
// Values of w under these parameters, fp32 (fp64 if w is fp64): [taps, outputs]; or by multiples [taps, multiplier,
// channels].
Tensor depthwise_weights(const Tensor& w, const ConvForm& form, const ScaleMap& map, bool by_multiples);

inline ScaleMap without_scale(ScaleMap map) {
  map.scale = nullptr;
  return map;
}
inline const void* data_of(const Tensor& t) { return t.defined() ? t.data() : nullptr; }
// Whether x has codes of at most 8 bits, fp32 or bf16.
bool opens_to_fp32(const Tensor& t);
// The largest abs(q - z) of the codes.
int64_t most_of_code(const Tensor& t);
inline constexpr int64_t kExactInFp32 = int64_t{1} << 24;

}  // namespace bitgrad::detail
