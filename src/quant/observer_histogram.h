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
  static constexpr int64_t kBins = 2048;
  // sides: 1, or 2 to count x >= 0 (side 0) and x < 0 (side 1) apart.
  explicit Histogram(int64_t sides);

  // x fp32, finite, max abs x = largest.
  void add(const Tensor& x, float largest);
  int64_t count(int64_t side, int64_t bin) const { return counts_.as<int64_t>()[side * kBins + bin]; }
  // (bin + 1) * w; may be 2^128.
  double upper_edge(int64_t bin) const;
  // (bin + 1/2) * w, exact.
  float centre(int64_t bin) const;
  // "counts" int64 [sides * 2048], "exponent" int64 [1].
  void append_state(std::vector<Observer::State>& out) const;

 private:
  int exponent() const;
  void grow(int exponent);

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
  void take(const Tensor& x, std::span<const float> low, std::span<const float> high) final;

  Histogram histogram_;
};

}  // namespace bitgrad::detail
