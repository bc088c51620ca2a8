// min_max: low = min, high = max of each block over all batches. (Jacob et al. 2018, arXiv 1712.05877, section 3, use
// this range for weights.)
#include "quant/observer_base.h"

namespace bitgrad::detail {
namespace {

class MinMax final : public ObserverBase {
 public:
  MinMax(const QuantSpec& spec, int64_t features) : ObserverBase("min_max", spec, features, true) {}
};

}  // namespace

std::unique_ptr<Observer> make_MinMaxObserver(const ObserverSpec&, const QuantSpec& spec, int64_t features) {
  return std::make_unique<MinMax>(spec, features);
}

}  // namespace bitgrad::detail
