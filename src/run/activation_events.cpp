// Statistics of activation quantizers, observed through StepState::on_forward while one batch is predicted.
#include <functional>
#include <map>

#include "bitgrad/ops/ops.h"
#include "bitgrad/run/quant_monitor.h"
#include "nn/activation_quantizer.h"

namespace bitgrad {
namespace {

using Quantizers = std::map<std::string, QuantSpec>;  // by path

void collect(Module& module, Quantizers& out, std::vector<std::string>& order) {
  const auto* quantizer = dynamic_cast<const ActivationQuantizer*>(&module);
  if (quantizer != nullptr && quantizer->quant_mode().quantization != QuantSwitch::kOff) {
    out.emplace(module.path(), quantizer->quant().spec);
    order.push_back(module.path());
  }
  for (Module* child : module.children()) collect(*child, out, order);
}

QuantEvent event_of(const QuantPlace& place, const QuantSpec& spec, const Tensor& in, const Tensor& out) {
  QuantEvent e;
  e.layer = place.layer;
  e.part = place.part;
  e.dtype = out.dtype().name();
  e.scheme = out.quant()->scheme;
  e.granularity = concat(out.quant()->granularity);
  const bool values = in.dtype() == dtypes::fp32 || in.dtype() == dtypes::bf16;  // int32 sums are not converted
  const bool known = values && in.contiguous();
  e.statistics = quant_statistics(spec, out, known ? cast(in, dtypes::fp32).value() : Tensor());
  return e;
}

}  // namespace

std::vector<QuantEvent> activation_events(Learner& learner, const Tensor& x) {
  Quantizers quantizers;
  std::vector<std::string> order;
  collect(learner.model(), quantizers, order);
  if (quantizers.empty()) return {};
  const std::map<std::string, QuantPlace> places = quant_places(learner.model());
  StepState& state = learner.state();
  std::map<std::string, QuantEvent> found;
  struct Hook {
    StepState& state;
    std::function<void(const std::string&, const Tensor&, const Tensor&)> before;
    ~Hook() { state.on_forward = std::move(before); }
  } hook{state, state.on_forward};
  state.on_forward = [&](const std::string& path, const Tensor& in, const Tensor& out) {
    const auto at = quantizers.find(path);
    if (at == quantizers.end() || found.count(path) != 0 || !out.dtype().is_code() || !out.quant()) return;
    QuantSpec spec = at->second;
    if (ste_rule(spec) == SteRule::kTanh) spec.ste_t = annealed_t(spec, state.progress);
    found[path] = event_of(places.at(path), spec, in, out);
    found[path].step = state.step;
  };
  try {
    learner.predict(x);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNonFinite) throw;  // the training step will report them
    return {};
  }
  std::vector<QuantEvent> events;
  for (const std::string& path : order)
    if (const auto at = found.find(path); at != found.end()) events.push_back(std::move(at->second));
  return events;
}

}  // namespace bitgrad
