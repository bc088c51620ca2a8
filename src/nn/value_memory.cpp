// The value of a parameter in memory: derived layouts and scales.
#include <algorithm>

#include "bitgrad/nn/parameter.h"
#include "kernels/pack.h"

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

}  // namespace

void ValueMemory::add_layout(Layout layout) {
  if (layout == layouts::canonical || std::find(planned_.begin(), planned_.end(), layout) != planned_.end()) return;
  planned_.push_back(layout);
  if (value_.defined()) write_layouts();
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
}

}  // namespace bitgrad
