#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "bitgrad/base/json.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/run/quant_monitor.h"

#include "nn/activation_quantizer.h"
#include "train/train_state.h"

namespace bitgrad {
namespace {

// Whether codes have the same meaning as before; otherwise neither flips nor drift are defined.
bool same_form(const Tensor& codes, const QuantParams& params, const Parameter& p) {
  const Tensor& now = p.value();
  return codes.dtype() == now.dtype() && codes.shape() == now.shape() && params.scheme == now.quant()->scheme &&
         params.granularity == now.quant()->granularity;
}

void add_quantize_layers(Module& module, std::map<std::string, QuantPlace>& places) {
  if (dynamic_cast<const ActivationQuantizer*>(&module) != nullptr)
    places.emplace(module.path(), QuantPlace{module.path(), "quantize"});
  for (Module* child : module.children()) add_quantize_layers(*child, places);
}

constexpr size_t kMostInHistogram = 16;  // codes: dtypes of up to 4 bits

// Infinity, which JSON lacks, becomes a text. Other values are rounded to float, for brevity.
Json rounded(double x) {
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  if (std::isnan(x)) return nullptr;
  return std::stod(concat(static_cast<float>(x)));
}
Json rounded(const std::optional<double>& x) { return x ? rounded(*x) : Json(nullptr); }

Json record(const QuantStatistics& s) {
  Json j{{"elements", s.elements},
         {"codes", s.histogram.size()},
         {"dead_codes", s.dead_codes},
         {"entropy", rounded(s.entropy)},
         {"entropy_limit", rounded(s.entropy_limit)},
         {"at_ends", rounded(s.at_ends)},
         {"saturated", rounded(s.saturated)},
         {"pass", rounded(s.pass)},
         {"sqnr_db", rounded(s.sqnr_db)},
         {"scale", nullptr}};
  if (s.scale)
    j["scale"] = {
        {"least", rounded(s.scale->least)}, {"mean", rounded(s.scale->mean)}, {"largest", rounded(s.scale->largest)}};
  if (s.histogram.size() <= kMostInHistogram) j["histogram"] = s.histogram;
  return j;
}

// Statistics of activation quantizers, observed through StepState::on_forward while one batch is predicted.

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

std::map<std::string, QuantPlace> quant_places(Module& model) {
  std::map<std::string, QuantPlace> places;
  for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot)) {
    places[at.slot->weight().path()] = {at.layer, "weight"};
    if (const ActivationQuantizer* input = at.slot->input_quantizer()) places[input->path()] = {at.layer, "input"};
  }
  add_quantize_layers(model, places);
  for (const Parameter* p : model.parameters())
    if (p->low_bit()) places.emplace(p->path(), QuantPlace{p->path(), "weight"});
  return places;
}

QuantMonitor::QuantMonitor(Learner& learner, int64_t window) : learner_(learner), window_(window) {
  require(window > 0, "QuantMonitor", "the window is at least one requantization, got ", window);
  follow();
}

namespace {

// A copy, because recorded steps overwrite scales in place (Parameter::keep_params_in_place).
std::shared_ptr<const QuantParams> copy_of(const QuantParams& params) {
  QuantParams copy = params;
  if (copy.scale) copy.scale = std::make_shared<const Tensor>(copy.scale->clone(MemoryKind::kWorkspace));
  return std::make_shared<const QuantParams>(std::move(copy));
}

}  // namespace

void QuantMonitor::keep(Weight& w) const {
  const Tensor& now = w.parameter->value();
  if (w.codes.defined() && w.codes.dtype() == now.dtype() && w.codes.shape() == now.shape())
    w.codes.copy_from(now.without_quant());
  else
    w.codes = now.without_quant().clone(MemoryKind::kWorkspace);
  w.params = learner_.device().is_cpu() ? now.quant() : copy_of(*now.quant());
  w.since = learner_.state().step;
}

// Starts counting for weights that became low-bit or changed form; drops those that are gone.
void QuantMonitor::follow() {
  phase_ = learner_.phase();
  places_ = quant_places(learner_.model());
  std::set<std::string> found;
  order_.clear();
  for (Parameter* p : learner_.model().parameters()) {
    if (!p->low_bit() || !p->value().quant()) continue;
    found.insert(p->path());
    order_.push_back(p->path());
    const auto at = weights_.find(p->path());
    if (at != weights_.end() && at->second.parameter == p && same_form(at->second.codes, *at->second.params, *p))
      continue;
    Weight& w = weights_[p->path()] = Weight{p, {}, nullptr, 0, std::nullopt};
    keep(w);
  }
  std::erase_if(weights_, [&](const auto& entry) { return found.count(entry.first) == 0; });
}

void QuantMonitor::expect(int64_t microbatches) {
  if (watching_ || microbatches > window_ * learner_.train_state().policy.every) return;
  watching_ = true;
  watch_all();
}

void QuantMonitor::watch_all() {
  for (auto& [path, w] : weights_) w.watch.emplace(w.parameter->value());
}

void QuantMonitor::stepped() {
  if (learner_.phase() != phase_) {
    follow();
    if (watching_) watch_all();
  } else if (watching_ && learner_.since_requantize() == 0) {
    for (auto& [path, w] : weights_) w.watch->observe(w.parameter->value());
  }
}

QuantEvent QuantMonitor::event_of(Weight& w, int64_t epoch) const {
  const Parameter& p = *w.parameter;
  const QuantParams& params = *p.value().quant();
  QuantEvent e;
  e.step = learner_.state().step;
  e.epoch = epoch;
  e.layer = places_.at(p.path()).layer;
  e.part = "weight";
  e.dtype = p.value().dtype().name();
  e.scheme = params.scheme;
  e.granularity = concat(params.granularity);
  e.statistics = quant_statistics(p);
  const double n = static_cast<double>(p.shape().numel());
  e.since = w.since;
  if (w.since < e.step && n > 0) {
    e.flip_rate = static_cast<double>(count_flips(w.codes, p.value())) / n;
    e.scale_drift = scale_drift(*w.params, params);
  }
  if (!w.watch || w.watch->observations() == 0 || n == 0) return e;
  e.watched = w.watch->observations();
  const double watched = n * static_cast<double>(e.watched);
  e.flips_per_requantization = static_cast<double>(w.watch->flips()) / watched;
  if (e.watched < 2) return e;  // a reversal needs two changes
  e.oscillating = static_cast<double>(w.watch->reversed()) / n;
  e.oscillation = static_cast<double>(w.watch->reversals()) / watched;
  return e;
}

std::vector<QuantEvent> QuantMonitor::report(int64_t epoch, const Tensor& x) {
  std::vector<QuantEvent> events;
  for (const std::string& path : order_) {
    Weight& w = weights_.at(path);
    events.push_back(event_of(w, epoch));
    w.watch.reset();
    keep(w);
  }
  watching_ = false;
  if (!x.defined()) return events;
  for (QuantEvent& e : activation_events(learner_, x)) {
    e.epoch = epoch;
    events.push_back(std::move(e));
  }
  return events;
}

std::string to_json(const QuantStatistics& statistics) { return record(statistics).dump(); }

std::string to_json(const QuantEvent& e) {
  Json j{{"event", "quant"}, {"step", e.step},   {"epoch", e.epoch},   {"layer", e.layer},
         {"part", e.part},   {"dtype", e.dtype}, {"scheme", e.scheme}, {"granularity", e.granularity}};
  j.update(record(e.statistics));
  if (e.part != "weight") return j.dump();
  j["since"] = e.since ? Json(*e.since) : Json(nullptr);
  j["flip_rate"] = rounded(e.flip_rate);
  j["scale_drift"] = rounded(e.scale_drift);
  j["watched"] = e.watched;
  j["flips_per_requantization"] = rounded(e.flips_per_requantization);
  j["oscillating"] = rounded(e.oscillating);
  j["oscillation"] = rounded(e.oscillation);
  return j.dump();
}

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
