#include "quant/observer_base.h"

#include <algorithm>

#include "quant/blocks.h"

namespace bitgrad::detail {
namespace {

// One batch's statistic without negative zeros, whose sign depends on the order of a minimum.
std::vector<float> batch_statistic(const Blocks& blocks, ReduceRule rule) {
  std::vector<float> out = blocks.statistic(rule);
  for (float& v : out) v += 0.0f;
  return out;
}

}  // namespace

ObserverBase::ObserverBase(std::string_view name, const QuantSpec& spec, int64_t features, bool channels)
    : name_(name), features_(features), channels_(channels), granularity_(spec.granularity) {
  check(spec);
  const bool per_channel = granularity_.kind == Granularity::kChannel;
  require(!per_channel || features > 0, name_, "features: got ", features, ", expected at least 1 for ", granularity_,
          '.');
  const Shape shape{per_channel ? features : 1};
  low_ = Tensor::zeros(shape, dtypes::fp32, MemoryKind::kQuantState);
  high_ = Tensor::zeros(shape, dtypes::fp32, MemoryKind::kQuantState);
  batches_ = Tensor::zeros({1}, dtypes::int64, MemoryKind::kQuantState);
}

void ObserverBase::check(const QuantSpec& spec) const {
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  if (!quantizer.from_range()) {
    std::string names;
    for (const std::string_view known : quantizer_names())
      if (find_quantizer(known).from_range()) names += concat(names.empty() ? "" : ", ", known);
    fail(name_, "scheme ", spec.scheme, " has no scales that follow from a range. Use one of: ", names, '.');
  }
  quantizer.check(spec, false);
  const Granularity& g = spec.granularity;
  const bool per_channel = channels_ && g.kind == Granularity::kChannel && g.axis == 1;
  require(g.kind == Granularity::kTensor || per_channel, name_, "granularity: got ", g, ", expected tensor",
          channels_ ? " or channel(1)" : "",
          ". Ranges per token or group are found from each batch, without observer.");
  require(g == granularity_, name_, "granularity: got ", g, ", but the range was observed per ", granularity_, '.');
}

void ObserverBase::observe(const Tensor& x) {
  const Blocks blocks(name_, granularity_, x);
  require(granularity_.kind == Granularity::kTensor || x.cols() == features_, name_, "x ", x, " has ", x.cols(),
          " features, expected ", features_, '.');
  if (blocks.empty()) return;
  const std::vector<float> low = batch_statistic(blocks, ReduceRule::kMin),
                           high = batch_statistic(blocks, ReduceRule::kMax);
  take(x, low, high);
  ++*batches_.as<int64_t>();
}

QuantParams ObserverBase::params(const QuantSpec& spec) const {
  check(spec);
  require(ready(), name_, "no batch was observed yet, so there is no range to make scales of.");
  std::vector<float> l(low().begin(), low().end()), h(high().begin(), high().end());
  narrow(spec, l, h);
  return find_quantizer(spec.scheme).fit_range(spec, l, h);
}

std::vector<Observer::State> ObserverBase::state() const {
  return {{"low", low_}, {"high", high_}, {"batches", batches_}};
}

void ObserverBase::widen(std::span<const float> new_low, std::span<const float> new_high) {
  const std::span<float> l = low(), h = high();
  for (size_t j = 0; j < l.size(); ++j) {
    l[j] = ready() ? std::min(l[j], new_low[j]) : new_low[j];
    h[j] = ready() ? std::max(h[j], new_high[j]) : new_high[j];
  }
}

}  // namespace bitgrad::detail
