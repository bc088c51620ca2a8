// The value of a parameter in memory: derived layouts and scales.
#include <algorithm>
#include <span>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/nn/parameter.h"
#include "kernels/pack.h"
#include "kernels/panel_scales.h"

namespace bitgrad {
namespace {

// Copies the values of `from` into the tensors of `to`. Returns false and copies nothing if their forms differ.
bool copy_params(const QuantParams& from, const std::shared_ptr<const QuantParams>& to) {
  if (!to || to.get() == &from) return to != nullptr;
  using Part = std::shared_ptr<const Tensor> QuantParams::*;
  constexpr Part kParts[] = {&QuantParams::scale, &QuantParams::zero, &QuantParams::offset, &QuantParams::statistic};
  bool same = from.scheme == to->scheme && from.granularity == to->granularity;
  for (const Part part : kParts)
    same = same && (from.*part == nullptr) == ((*to).*part == nullptr) &&
           (from.*part == nullptr || (from.*part)->shape() == ((*to).*part)->shape());
  if (!same) return false;
  for (const Part part : kParts)
    if (from.*part && from.*part != (*to).*part) ((*to).*part)->copy_from(*(from.*part));
  return true;
}

// The scales of groups along k in the order of layout vnni64 (kernels/panel_scales.h), in fp16 if that is exact;
// undefined for others.
Tensor panel_scales_of(const Tensor& value) {
  const std::shared_ptr<const QuantParams>& params = value.quant();
  if (!params || !params->scale || params->granularity.kind != Granularity::kGroup || value.numel() == 0) return {};
  const ScaleMap map = value.scale_map();
  if (map.col_step == 0) return {};
  const int64_t groups = (value.cols() - 1) / map.col_group + 1;
  const Tensor scales =
      Tensor::empty({kernels::panel_scale_count(value.rows(), groups)}, dtypes::fp32, MemoryKind::kDerived);
  kernels::order_panel_scales(map, value.rows(), value.cols(), scales.as<float>());
  const std::span<const float> all(scales.as<float>(), static_cast<size_t>(scales.numel()));
  const auto exact = [](float x) { return fp16_to_float(fp16_from_float(x)) == x; };
  if (!std::all_of(all.begin(), all.end(), exact)) return scales;
  const Tensor halves = Tensor::empty(scales.shape(), dtypes::fp16, MemoryKind::kDerived);
  std::transform(all.begin(), all.end(), halves.as<uint16_t>(), fp16_from_float);
  return halves;
}

}  // namespace

void ValueMemory::add_layout(Layout layout) {
  if (layout == layouts::canonical || std::find(planned_.begin(), planned_.end(), layout) != planned_.end()) return;
  planned_.push_back(layout);
  if (!value_.defined()) return;
  const DeviceGuard own(value_.device());
  write_layouts();
}

void ValueMemory::forget_layouts() {
  planned_.clear();
  if (value_.defined()) value_ = value_.reshape(value_.shape());
}

void ValueMemory::set_params(const std::shared_ptr<const QuantParams>& params) {
  if (!in_place_ || !copy_params(*params, value_.quant())) value_ = value_.with_quant(params);
}

void ValueMemory::write_layouts(const std::function<bool(Layout)>& written) {
  if (value_.dtype() == dtypes::fp32) return;
  for (const Layout layout : planned_) {
    if (written && written(layout)) continue;
    Tensor derived = value_.in_layout(layout);
    if (!derived.defined())
      derived = Tensor::empty_layout(value_.shape(), value_.dtype(), layout, MemoryKind::kDerived);
    kernels::pack(
        {value_.dtype(), value_.rows(), value_.cols(), value_.data(), value_.stride(), layout, derived.data()});
    value_.attach_layout(derived);
  }
  if (one_layout_ && value_.device().is_cpu() && value_.numel() > 0) keep_one_layout();
}

void ValueMemory::keep_one_layout() {
  for (const Layout layout : planned_) {
    if (layout.rows() == nullptr) continue;
    Tensor derived = value_.in_layout(layout);
    if (layout == layouts::vnni64) derived.attach_panel_scales(panel_scales_of(value_));
    value_.attach_layout(derived.without_quant());
    value_.keep_only(layout);
    return;
  }
}

}  // namespace bitgrad
