// moving_average: r = momentum * r + (1 - momentum) * new for low and high of each block, each operation rounded once
// in fp32; the first batch sets the range (Jacob et al. 2018, arXiv 1712.05877, section 3.1).
#include "quant/observer_base.h"

namespace bitgrad::detail {
namespace {

class MovingAverage final : public ObserverBase {
 public:
  MovingAverage(const ObserverSpec& observer, const QuantSpec& spec, int64_t features)
      : ObserverBase("moving_average", spec, features, true), momentum_(observer.momentum) {}

 private:
  std::optional<float> momentum() const override { return momentum_; }
  float momentum_;
};

}  // namespace

std::unique_ptr<Observer> make_MovingAverageObserver(const ObserverSpec& observer, const QuantSpec& spec,
                                                     int64_t features) {
  return std::make_unique<MovingAverage>(observer, spec, features);
}

}  // namespace bitgrad::detail
