// A histogram of abs x in 2048 bins of [0, 2^e), e the smallest that holds all numbers, at least -100. Bin i counts
// i * w <= abs x < (i + 1) * w, w = 2^(e-11). When a number does not fit the range doubles and pairs of bins merge. As
// w is a power of two every bin edge is exact, and the counts depend on the numbers alone: not on their order, on how
// they came in batches, or on threads.
#pragma once

#include <vector>

#include "quant/observer_base.h"

namespace bitgrad::detail {

class Histogram {
 public:
  static constexpr int64_t kBins = maps::q::kHistogramBins;
  // sides: 1, or 2 to count x >= 0 (side 0) and x < 0 (side 1) apart.
  explicit Histogram(int64_t sides);

  // x fp32, low and high its least and largest number; bad as in ObserverBase::Batch.
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

// An observer, per tensor, that keeps a histogram beside the range.
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
