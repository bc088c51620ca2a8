#include "quant/observer_base.h"

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/quant/quantizer.h"
#include "quant/blocks.h"

namespace bitgrad::detail {
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
      if (known_quantizer(known).from_range()) names += concat(names.empty() ? "" : ", ", known);
    fail(name_, "scheme ", spec.scheme, " has no scales that are computed from a range. Use one of: ", names, '.');
  }
  quantizer.check(spec, false);
  const Granularity& g = spec.granularity;
  const bool per_channel = channels_ && g.kind == Granularity::kChannel && g.axis == 1;
  require(g.kind == Granularity::kTensor || per_channel, name_, "granularity: got ", g, ", expected tensor",
          channels_ ? " or channel(1)" : "",
          ". Ranges per token or group are computed from each batch, without observer.");
  require(g == granularity_, name_, "granularity: got ", g, ", but the range was observed per ", granularity_, '.');
}

void ObserverBase::observe(const Tensor& x, bool calibrating) {
  const Blocks blocks(name_, granularity_, x);
  require(granularity_.kind == Granularity::kTensor || x.cols() == features_, name_, "x ", x, " has ", x.cols(),
          " features, expected ", features_, '.');
  if (blocks.empty()) return;
  const DataFlag flag;
  Tensor bad;
  if (!current_device().is_cpu()) bad = Tensor::zeros({1}, dtypes::int32, MemoryKind::kWorkspace);
  auto* const bad_word = bad.defined() ? reinterpret_cast<uint32_t*>(bad.as<int32_t>()) : nullptr;
  Range batch;
  {
    const FlagScope scope(bad_word);
    batch = {blocks.statistic(kernels::ReduceRule::kMin), blocks.statistic(kernels::ReduceRule::kMax)};
  }
  consume({x, batch.low, batch.high, bad_word});
  const std::optional<float> kept = calibrating ? std::nullopt : momentum();
  run_map(maps::ObserveRange{batch.low.as<float>(), batch.high.as<float>(), kept.has_value(), kept.value_or(0.0f),
                             batches_.as<int64_t>(), bad_word, flag.word(), low_.as<float>(), high_.as<float>()},
          low_.numel());
  run_map(maps::CountBatch{batches_.as<int64_t>(), bad_word}, 1);
  flag.check(blocks.not_finite());
}

bool ObserverBase::ready() const {
  if (current_device().is_cpu()) return *batches_.as<int64_t>() > 0;
  seen_ready_ = seen_ready_ || batches_.item() > 0;
  return seen_ready_;
}

QuantParams ObserverBase::params(const QuantSpec& spec) const {
  check(spec);
  require(ready(), name_, "no batch was observed yet, so scales cannot be computed from a range.");
  const Range range = narrow(spec, {low_, high_});
  return find_quantizer(spec.scheme).fit_range(spec, range.low, range.high);
}

std::vector<Observer::State> ObserverBase::state() const {
  return {{"low", low_}, {"high", high_}, {"batches", batches_}};
}

}  // namespace bitgrad::detail

// ---- lookup of observers by name: the lines of observers.inc.
namespace bitgrad {

namespace detail {
#define BITGRAD_OBSERVER(name, class_name) \
  std::unique_ptr<Observer> make_##class_name##Observer(const ObserverSpec&, const QuantSpec&, int64_t features);
#include "quant/observers.inc"
#undef BITGRAD_OBSERVER
}  // namespace detail

namespace {

struct Line {
  std::string_view name;
  std::unique_ptr<Observer> (*make)(const ObserverSpec&, const QuantSpec&, int64_t);
};
constexpr Line kLines[] = {
#define BITGRAD_OBSERVER(name, class_name) {#name, detail::make_##class_name##Observer},
#include "quant/observers.inc"
#undef BITGRAD_OBSERVER
};

}  // namespace

std::vector<std::string_view> observer_names() {
  std::vector<std::string_view> out;
  for (const Line& line : kLines) out.push_back(line.name);
  return out;
}

std::unique_ptr<Observer> make_observer(const ObserverSpec& observer, const QuantSpec& spec, int64_t features) {
  require(observer.momentum >= 0.0f && observer.momentum < 1.0f, "make_observer", "momentum: got ", observer.momentum,
          ", expected 0 <= momentum < 1.");
  require(observer.percentile > 0.0f && observer.percentile <= 100.0f, "make_observer", "percentile: got ",
          observer.percentile, ", expected 0 < percentile <= 100.");
  for (const Line& line : kLines)
    if (line.name == observer.name) return line.make(observer, spec, features);
  const std::vector<std::string_view> names = observer_names();
  fail("make_observer", unknown_name("observer", observer.name, {names.begin(), names.end()}));
}

}  // namespace bitgrad
