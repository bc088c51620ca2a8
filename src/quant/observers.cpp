// The observers of ranges and of a percentile.
#include "quant/observer_base.h"
#include "quant/observer_histogram.h"

namespace bitgrad::detail {
namespace {

// min_max: low = min, high = max of each block over all batches. (Jacob et al. 2018, arXiv 1712.05877, section 3, use
// this range for weights.)
class MinMax final : public ObserverBase {
 public:
  MinMax(const QuantSpec& spec, int64_t features) : ObserverBase("min_max", spec, features, true) {}
};

// moving_average: r = momentum * r + (1 - momentum) * new for low and high of each block, each operation rounded once
// in fp32; the first batch sets the range (Jacob et al. 2018, arXiv 1712.05877, section 3.1).
class MovingAverage final : public ObserverBase {
 public:
  MovingAverage(const ObserverSpec& observer, const QuantSpec& spec, int64_t features)
      : ObserverBase("moving_average", spec, features, true), momentum_(observer.momentum) {}

 private:
  std::optional<float> momentum() const override { return momentum_; }
  float momentum_;
};

// percentile: t = upper edge of the first bin of abs x at which the cumulative count reaches percentile / 100 of all
// values, at most max abs x; the range is [clamp(min x, -t, t), clamp(max x, -t, t)]. (Range by a percentile of abs x:
// Wu et al. 2020, arXiv 2004.09602, section 3.)
class Percentile final : public HistogramObserver {
 public:
  Percentile(const ObserverSpec& observer, const QuantSpec& spec, int64_t features)
      : HistogramObserver("percentile", spec, features, 1), percentile_(observer.percentile) {}

 private:
  Range narrow(const QuantSpec&, const Range& observed) const override {
    Range out{Tensor::empty({1}, dtypes::fp32, MemoryKind::kWorkspace),
              Tensor::empty({1}, dtypes::fp32, MemoryKind::kWorkspace)};
    run_map(maps::PercentileRange{histogram().counts(), histogram().exponent(), static_cast<double>(percentile_),
                                  observed.low.as<float>(), observed.high.as<float>(), out.low.as<float>(),
                                  out.high.as<float>()},
            1);
    return out;
  }

  float percentile_;
};

}  // namespace

std::unique_ptr<Observer> make_MinMaxObserver(const ObserverSpec&, const QuantSpec& spec, int64_t features) {
  return std::make_unique<MinMax>(spec, features);
}

std::unique_ptr<Observer> make_MovingAverageObserver(const ObserverSpec& observer, const QuantSpec& spec,
                                                     int64_t features) {
  return std::make_unique<MovingAverage>(observer, spec, features);
}

std::unique_ptr<Observer> make_PercentileObserver(const ObserverSpec& observer, const QuantSpec& spec,
                                                  int64_t features) {
  return std::make_unique<Percentile>(observer, spec, features);
}

}  // namespace bitgrad::detail
