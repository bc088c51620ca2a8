// New values for learned steps of a weight that carry no signal.
#include <cmath>

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/nn/parameter.h"
#include "nn/step_signal.h"

namespace bitgrad {

int64_t Parameter::refit_learned(uint64_t seed, int64_t step) {
  if (learned_.empty() || !master_.defined() || spec_.frozen || scales_frozen_ || !learned_[0]->spec().floor) return 0;
  const bool compares = step % detail::kSignalEvery == 0;
  if (!value_.device().is_cpu() && !compares) return 0;  // reading back waits for the device
  const float floor = *learned_[0]->spec().floor;
  std::vector<Tensor> now;
  for (const auto& p : learned_) now.push_back(p->value().on_host());
  Tensor x;
  const auto master = [&] {
    if (master_.dtype() == dtypes::fp32) return master_;
    Tensor wide = Tensor::empty(*shape_, dtypes::fp32, MemoryKind::kWorkspace);
    kernels::from_bf16(wide.numel(), master_.as<uint16_t>(), wide.as<float>());
    return wide;
  };
  if (compares) x = master();
  const Tensor there = compares ? x.on_host() : Tensor();
  const std::vector<int64_t> found =
      detail::steps_without_signal(*spec_.quant, now, floor, compares ? &there : nullptr);
  if (found.empty()) return 0;
  if (!x.defined()) x = master();
  const std::vector<Tensor> first = quantizer_->first_learned(*spec_.quant, x);
  int64_t changed = 0;
  for (size_t i = 0; i < learned_.size(); ++i) {
    const auto& least = learned_[i]->spec().floor;
    const int64_t n = detail::copy_elements(found, first[i].on_host(), now[i], least ? *least : -INFINITY);
    if (i == 0) changed = n;
    if (!value_.device().is_cpu()) learned_[i]->value_.copy_from(now[i]);
  }
  if (changed > 0) requantize(seed, step);
  return changed;
}

}  // namespace bitgrad
