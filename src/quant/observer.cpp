// Lookup of observers by name: the lines of observers.inc.
#include "bitgrad/quant/quantizer.h"

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

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
