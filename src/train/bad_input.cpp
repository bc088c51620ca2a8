#include "train/bad_input.h"

#include <cmath>

#include "bitgrad/base/device.h"
#include "kernels/reduce.h"

namespace bitgrad::detail {

std::string non_finite_input(const Tensor& x) {
  if (!x.defined() || !x.dtype().is_float()) return "";
  const bool plain = x.dtype() == dtypes::fp32 && x.device().is_cpu() && x.contiguous();
  if (plain) {
    const DeviceGuard host(Device::cpu());  // like the tensor
    if (kernels::all_finite(x.as<float>(), x.numel())) return "";
  }
  const std::vector<float> values = x.to_vector();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto at = static_cast<int64_t>(i);
    return concat("x ", x, " holds ", std::isnan(values[i]) ? "NaN" : "Inf", " at [", at / x.cols(), ',', at % x.cols(),
                  ']');
  }
  return "";
}

void fail_input(const std::string& input, std::string_view what_moved) {
  fail_with(ErrorCode::kNonFinite, "input", input, ": samples must be finite.", what_moved);
}

void check_input(const Tensor& x) {
  if (const std::string input = non_finite_input(x); !input.empty()) fail_input(input, "");
}

}  // namespace bitgrad::detail
