// A histogram of abs x with 2048 bins over [0, 2^e), where e >= -100 is the smallest exponent that covers all values.
// Bin i counts i * w <= abs x < (i + 1) * w, w = 2^(e-11). When a value does not fit, the range doubles and pairs of
// bins merge. Because w is a power of two, all bin edges are exact and the counts depend on the values alone, not on
// their order, their division into batches, or threads.
#pragma once

#include <vector>

#include "quant/observer_base.h"

namespace bitgrad::detail {

class Histogram {
 public:
  static constexpr int64_t kBins = maps::q::kHistogramBins;
  // sides: 1, or 2 to count x >= 0 (side 0) and x < 0 (side 1) separately.
  explicit Histogram(int64_t sides);

  // x: fp32; low, high: its minimum and maximum; bad as in ObserverBase::Batch.
  void add(const Tensor& x, const Tensor& low, const Tensor& high, const uint32_t* bad);
  const int64_t* counts() const { return counts_.as<int64_t>(); }
  const int64_t* exponent() const { return exponent_.as<int64_t>(); }
  // "counts" int64 [sides * 2048], "exponent" int64 [1].
  void append_state(std::vector<Observer::State>& out) const;

 private:
  void grow(const Tensor& low, const Tensor& high, const uint32_t* bad);

  int64_t sides_;
  Tensor counts_, exponent_;
};

// An observer (per tensor only) that keeps a histogram in addition to the range.
class HistogramObserver : public ObserverBase {
 public:
  HistogramObserver(std::string_view name, const QuantSpec& spec, int64_t features, int64_t sides)
      : ObserverBase(name, spec, features, false), histogram_(sides) {}
  std::vector<State> state() const final;

 protected:
  const Histogram& histogram() const { return histogram_; }

 private:
  void consume(const Batch& batch) final { histogram_.add(batch.x, batch.low, batch.high, batch.bad); }

  Histogram histogram_;
};

}  // namespace bitgrad::detail
