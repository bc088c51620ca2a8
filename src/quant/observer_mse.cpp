// mse: of the 81 thresholds t = a * k / 100, k = 20 .. 100, a = max abs x, selects the one whose range
// [clamp(min x, -t, t), clamp(max x, -t, t)] has the least error E = sum over bins of count * (c - v)^2, where c is the
// centre of the bin and v its value after quantization to the nearest code by the scheme with that range. Ties go to
// the larger t, which is computed as (a * k) / 100 in double and rounded once to fp32. E is summed in double, bins of
// x >= 0 first, each side in ascending order of abs x. (Range by least squared error: Nagel et al. 2021, arXiv
// 2106.08295, section 3.1.)
#include "quant/observer_histogram.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kFirst = 20, kThresholds = 81;

// Centres and counts of bins.
struct Weighted {
  Tensor centre, weight;  // fp32, fp64 [bins]
};

Tensor workspace(const Shape& shape, DType dtype = dtypes::fp32) {
  return Tensor::empty(shape, dtype, MemoryKind::kWorkspace);
}

class Mse final : public HistogramObserver {
 public:
  Mse(const QuantSpec& spec, int64_t features) : HistogramObserver("mse", spec, features, 2) {}

 private:
  Range narrow(const QuantSpec& spec, const Range& observed) const override {
    const Range cut{workspace({kThresholds}), workspace({kThresholds})};
    Range out{workspace({1}), workspace({1})};
    run_map(maps::MseRanges{observed.low.as<float>(), observed.high.as<float>(), kFirst, cut.low.as<float>(),
                            cut.high.as<float>()},
            kThresholds);
    const Tensor error = errors(spec, cut);
    run_map(maps::MseBest{error.as<double>(), kThresholds, cut.low.as<float>(), cut.high.as<float>(),
                          out.low.as<float>(), out.high.as<float>()},
            1);
    return out;
  }
  // All bins; on the CPU only those that are not empty, which gives the same sums.
  Weighted weighted() const {
    const int64_t bins = 2 * Histogram::kBins;
    Weighted all{workspace({bins}), workspace({bins}, dtypes::fp64)};
    run_map(
        maps::MseBins{histogram().counts(), histogram().exponent(), all.centre.as<float>(), all.weight.as<double>()},
        bins);
    if (!current_device().is_cpu()) return all;
    float* const centre = all.centre.as<float>();
    double* const weight = all.weight.as<double>();
    int64_t kept = 0;
    for (int64_t i = 0; i < bins; ++i) {
      if (weight[i] == 0) continue;
      centre[kept] = centre[i];
      weight[kept++] = weight[i];
    }
    return {all.centre.reshape({bins, 1}).row_slice(0, kept).reshape({kept}),
            all.weight.reshape({bins, 1}).row_slice(0, kept).reshape({kept})};
  }
  // E of each range. Every range quantizes its own row of all bin centres, with one scale per row.
  Tensor errors(const QuantSpec& spec, const Range& ranges) const {
    const Weighted bins = weighted();
    const int64_t n = bins.centre.numel();
    QuantSpec nearest = spec;
    nearest.rounding = Rounding::kNearest;
    nearest.granularity = Granularity::token();
    const Tensor x = workspace({kThresholds, n});
    Tensor error = workspace({kThresholds}, dtypes::fp64);
    run_map(maps::RepeatRow{bins.centre.as<float>(), n, x.as<float>()}, x.numel());
    QuantizeOptions options;
    options.kind = MemoryKind::kWorkspace;
    const Tensor codes = quantize_tensor(
        nearest, x,
        std::make_shared<const QuantParams>(find_quantizer(spec.scheme).fit_range(nearest, ranges.low, ranges.high)),
        options);
    const Tensor values = dequantize_tensor(codes, MemoryKind::kWorkspace);
    run_map(
        maps::MseErrors{bins.centre.as<float>(), values.as<float>(), bins.weight.as<double>(), n, error.as<double>()},
        kThresholds, /*grain=*/8);
    return error;
  }
};

}  // namespace

std::unique_ptr<Observer> make_MseObserver(const ObserverSpec&, const QuantSpec& spec, int64_t features) {
  return std::make_unique<Mse>(spec, features);
}

}  // namespace bitgrad::detail
