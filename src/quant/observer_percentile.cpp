// percentile: t = upper edge of the first bin of abs x up to which at least percentile / 100 of all numbers lie, at
// most max abs x; range [clamp(min x, -t, t), clamp(max x, -t, t)]. (Range by a percentile of abs x: Wu et al. 2020,
// arXiv 2004.09602, section 3.)
#include <algorithm>
#include <cmath>

#include "quant/observer_histogram.h"

namespace bitgrad::detail {
namespace {

class Percentile final : public HistogramObserver {
 public:
  Percentile(const ObserverSpec& observer, const QuantSpec& spec, int64_t features)
      : HistogramObserver("percentile", spec, features, 1), percentile_(observer.percentile) {}

 private:
  void narrow(const QuantSpec&, std::span<float> l, std::span<float> h) const override {
    const double largest = std::max(std::fabs(l[0]), std::fabs(h[0]));
    clip_range(static_cast<float>(std::min(threshold(), largest)), l[0], h[0]);
  }
  double threshold() const {
    int64_t total = 0, sum = 0, bin = 0;
    for (int64_t i = 0; i < Histogram::kBins; ++i) total += histogram().count(0, i);
    const double wanted = static_cast<double>(percentile_) * static_cast<double>(total);
    for (; bin < Histogram::kBins - 1; ++bin) {
      sum += histogram().count(0, bin);
      if (100.0 * static_cast<double>(sum) >= wanted) break;
    }
    return histogram().upper_edge(bin);
  }

  float percentile_;
};

}  // namespace

std::unique_ptr<Observer> make_PercentileObserver(const ObserverSpec& observer, const QuantSpec& spec,
                                                  int64_t features) {
  return std::make_unique<Percentile>(observer, spec, features);
}

}  // namespace bitgrad::detail
