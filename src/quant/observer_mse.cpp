// mse: of the 81 thresholds t = a * k / 100, k = 20 .. 100, a = max abs x, the one whose range [clamp(min x, -t, t),
// clamp(max x, -t, t)] has the least error E = sum over bins of count * (c - v)^2; c = the bin's centre, v = its value
// after quantizing to the nearest code by the scheme with that range. A tie goes to the larger t. t = (a * k) / 100 in
// double, rounded once to fp32; E in double, bins of x >= 0 first, each side in ascending order of abs x. (Range by
// least squared error: Nagel et al. 2021, arXiv 2106.08295, section 3.1.)
#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/observer_histogram.h"

namespace bitgrad::detail {
namespace {

// Centres of the bins that are not empty, and their counts.
struct Weighted {
  Tensor centres;
  std::vector<double> weights;
};

class Mse final : public HistogramObserver {
 public:
  Mse(const QuantSpec& spec, int64_t features) : HistogramObserver("mse", spec, features, 2) {}

 private:
  void narrow(const QuantSpec& spec, std::span<float> l, std::span<float> h) const override {
    const Weighted bins = weighted();
    const double largest = std::max(std::fabs(l[0]), std::fabs(h[0]));
    double least = std::numeric_limits<double>::infinity();
    float best = static_cast<float>(largest);
    for (int k = 20; k <= 100; ++k) {
      const float t = static_cast<float>(largest * k / 100.0);
      float low = l[0], high = h[0];
      clip_range(t, low, high);
      const double e = error(spec, bins, low, high);
      if (e > least) continue;
      least = e;
      best = t;
    }
    clip_range(best, l[0], h[0]);
  }
  Weighted weighted() const {
    std::vector<float> centres;
    Weighted out;
    for (int64_t side = 0; side < 2; ++side)
      for (int64_t i = 0; i < Histogram::kBins; ++i) {
        const int64_t n = histogram().count(side, i);
        if (n == 0) continue;
        centres.push_back(side == 0 ? histogram().centre(i) : -histogram().centre(i));
        out.weights.push_back(static_cast<double>(n));
      }
    out.centres = Tensor::empty({static_cast<int64_t>(centres.size())}, dtypes::fp32, MemoryKind::kWorkspace);
    std::copy(centres.begin(), centres.end(), out.centres.as<float>());
    return out;
  }
  static double error(const QuantSpec& spec, const Weighted& bins, float low, float high) {
    QuantSpec nearest = spec;
    nearest.rounding = Rounding::kNearest;
    auto params = std::make_shared<const QuantParams>(
        find_quantizer(spec.scheme).fit_range(nearest, std::span(&low, 1), std::span(&high, 1)));
    QuantizeOptions options;
    options.kind = MemoryKind::kWorkspace;
    const Tensor codes = quantize_tensor(nearest, bins.centres, std::move(params), options);
    const Tensor values = dequantize_tensor(codes, MemoryKind::kWorkspace);
    double sum = 0;
    for (size_t i = 0; i < bins.weights.size(); ++i) {
      const double d = static_cast<double>(bins.centres.as<float>()[i]) - static_cast<double>(values.as<float>()[i]);
      sum += bins.weights[i] * (d * d);
    }
    return sum;
  }
};

}  // namespace

std::unique_ptr<Observer> make_MseObserver(const ObserverSpec&, const QuantSpec& spec, int64_t features) {
  return std::make_unique<Mse>(spec, features);
}

}  // namespace bitgrad::detail
