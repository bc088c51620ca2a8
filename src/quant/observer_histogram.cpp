#include "quant/observer_histogram.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "bitgrad/base/parallel.h"

namespace bitgrad::detail {
namespace {

constexpr int kLog2Bins = 11, kLowest = -100, kHighest = 128;
constexpr int64_t kTaskElements = 65536;
static_assert(int64_t{1} << kLog2Bins == Histogram::kBins);

}  // namespace

Histogram::Histogram(int64_t sides)
    : sides_(sides),
      counts_(Tensor::zeros({sides * kBins}, dtypes::int64, MemoryKind::kQuantState)),
      exponent_(Tensor::full({1}, dtypes::int64, kLowest, MemoryKind::kQuantState)) {}

int Histogram::exponent() const {
  return static_cast<int>(std::clamp<int64_t>(*exponent_.as<int64_t>(), kLowest, kHighest));
}

void Histogram::grow(int exponent) {
  const int shift = std::min(exponent - this->exponent(), kLog2Bins);
  if (shift <= 0) return;
  std::vector<int64_t> merged(static_cast<size_t>(counts_.numel()));
  for (int64_t side = 0; side < sides_; ++side)
    for (int64_t i = 0; i < kBins; ++i) merged[static_cast<size_t>(side * kBins + (i >> shift))] += count(side, i);
  std::copy(merged.begin(), merged.end(), counts_.as<int64_t>());
  *exponent_.as<int64_t>() = exponent;
}

void Histogram::add(const Tensor& x, float largest) {
  int needed;
  std::frexp(largest, &needed);
  grow(largest > 0 ? needed : kLowest);
  // abs x * inverse is exact, or so small that it lies in bin 0 either way.
  const float inverse = std::ldexp(1.0f, kLog2Bins - exponent());
  const int64_t cols = x.cols(), ldx = x.stride() / static_cast<int64_t>(sizeof(float));
  const int64_t negative = sides_ == 2 ? kBins : 0;
  std::mutex mutex;
  parallel_ranges(x.rows(), std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, cols)),
                  [&](int64_t begin, int64_t end) {
                    std::vector<int64_t> local(static_cast<size_t>(counts_.numel()));
                    for (int64_t r = begin; r < end; ++r) {
                      const float* row = x.as<float>() + r * ldx;
                      for (int64_t c = 0; c < cols; ++c) {
                        const int64_t bin = static_cast<int64_t>(std::fabs(row[c]) * inverse);
                        ++local[static_cast<size_t>(bin + (row[c] < 0 ? negative : 0))];
                      }
                    }
                    const std::lock_guard lock(mutex);
                    int64_t* counts = counts_.as<int64_t>();
                    for (size_t i = 0; i < local.size(); ++i) counts[i] += local[i];
                  });
}

double Histogram::upper_edge(int64_t bin) const {
  return std::ldexp(static_cast<double>(bin + 1), exponent() - kLog2Bins);
}

float Histogram::centre(int64_t bin) const {
  return static_cast<float>(std::ldexp(static_cast<double>(bin) + 0.5, exponent() - kLog2Bins));
}

void Histogram::append_state(std::vector<Observer::State>& out) const {
  out.push_back({"counts", counts_});
  out.push_back({"exponent", exponent_});
}

std::vector<Observer::State> HistogramObserver::state() const {
  std::vector<State> out = ObserverBase::state();
  histogram_.append_state(out);
  return out;
}

void HistogramObserver::take(const Tensor& x, std::span<const float> new_low, std::span<const float> new_high) {
  widen(new_low, new_high);
  histogram_.add(x, std::max(std::fabs(new_low[0]), std::fabs(new_high[0])));
}

}  // namespace bitgrad::detail
