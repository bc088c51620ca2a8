#include "nn/step_signal.h"

#include <algorithm>
#include <utility>

#include "bitgrad/base/log.h"
#include "bitgrad/base/step_scalars.h"
#include "kernels/flag.h"
#include "nn/map/step_signal.h"
#include "quant/learned.h"

namespace bitgrad::detail {
namespace {

constexpr float kFarOff = 16;  // a fit that is this many times the step

// Whether no step can change, which the CPU sees at once.
bool all_healthy(const Tensor& steps, float floor, int64_t step) {
  if (!current_device().is_cpu() || step % kSignalEvery == 0) return false;
  const float* const s = steps.as<float>();
  return std::none_of(s, s + steps.numel(), [floor](float v) { return v <= floor; });
}

void read_values(const Tensor& x, maps::RefitSteps& map) {
  if (x.dtype() == dtypes::fp32) map.wide = x.as<float>();
  if (x.dtype() == dtypes::bf16) map.narrow = x.as<uint16_t>();
  if (x.dtype() != dtypes::int32) return;
  map.sums = x.as<int32_t>();
  map.elements = {x.cols(), x.scale_map()};
}

// Blocks of granularity tensor, channel(0) or another channel, the columns.
void find_blocks(const Granularity& g, const Tensor& x, maps::RefitSteps& map) {
  if (g.kind == Granularity::kTensor) {
    map.count = x.numel();
  } else if (g.axis == 0) {
    map.count = map.block = x.cols();
  } else {
    map.count = x.rows();
    map.block = 1;
    map.each = x.cols();
  }
}

}  // namespace

void refit_steps(const QuantSpec& spec, std::span<const Tensor> learned, float floor, const Tensor& from, int64_t step,
                 const RefitOf& of) {
  const std::optional<StepFit> fit = find_quantizer(spec.scheme).step_fit(spec);
  if (!fit || from.numel() == 0 || all_healthy(learned[0], floor, step)) return;
  const Tensor x = from.contiguous() ? from : from.clone(MemoryKind::kWorkspace);
  const Tensor changed = Tensor::empty(learned[0].shape(), dtypes::int32, MemoryKind::kWorkspace);
  const FlagWord flag;
  const RandomStream now = live_by_step({.step = static_cast<uint32_t>(step)});
  maps::RefitSteps map;
  read_values(x, map);
  find_blocks(spec.granularity, x, map);
  map.step = now.step;
  map.live = now.live;
  map.every = kSignalEvery;
  map.qmin = static_cast<float>(spec.dtype.info().qmin);
  map.qmax = static_cast<float>(spec.dtype.info().qmax);
  map.floor = floor;
  map.far = kFarOff;
  map.factor = fit->factor;
  map.per_unit = fit->steps;
  map.constant = fit->constant;
  map.lowest = fit->low;
  map.middle = middle_code(spec.dtype.info());
  map.steps = learned[0].as<float>();
  map.offsets = learned.size() > 1 ? learned[1].as<float>() : nullptr;
  map.changed = changed.as<int32_t>();
  map.flags = flag.word();
  run_map(map, changed.numel(), /*grain=*/std::max<int64_t>(1, kMapGrain / maps::RefitSteps::kMost));
  flag.read([of, changed](uint32_t any) {
    if (any == 0 || *of.told != 0) return;
    int64_t n = 0;
    for (const double one : changed.on_host().elements()) n += one != 0;
    tell_refit(of, n, changed.numel());
  });
}

void tell_refit(const RefitOf& of, int64_t n, int64_t all) {
  if (n == 0 || std::exchange(*of.told, n) != 0) return;
  log(LogLevel::kWarning,
      concat(of.path, ": ", n, " of ", all, " learned steps of the ", of.values,
             " carried no signal (at their floor, or all codes at the ends) and were fitted again. This is said once. ",
             "A smaller optim.lr or learned.lr_factor keeps them from falling"));
}

}  // namespace bitgrad::detail
