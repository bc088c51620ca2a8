#include "quant/observer_histogram.h"

#include <algorithm>
#include <mutex>

#include "bitgrad/base/parallel.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kTaskElements = 65536;
static_assert(int64_t{1} << maps::q::kHistogramLog2Bins == Histogram::kBins);

}  // namespace

Histogram::Histogram(int64_t sides)
    : sides_(sides),
      counts_(Tensor::zeros({sides * kBins}, dtypes::int64, MemoryKind::kQuantState)),
      exponent_(Tensor::full({1}, dtypes::int64, maps::q::kHistogramLowest, MemoryKind::kQuantState)) {}

void Histogram::grow(const Tensor& low, const Tensor& high, const uint32_t* bad) {
  const Tensor next = Tensor::empty({2}, dtypes::int64, MemoryKind::kWorkspace),
               merged = Tensor::empty(counts_.shape(), dtypes::int64, MemoryKind::kWorkspace);
  run_map(maps::HistogramGrowth{low.as<float>(), high.as<float>(), exponent(), bad, next.as<int64_t>()}, 1);
  run_map(maps::HistogramMerge{counts(), next.as<int64_t>(), merged.as<int64_t>()}, counts_.numel());
  run_map(
      maps::HistogramStore{merged.as<int64_t>(), next.as<int64_t>(), counts_.as<int64_t>(), exponent_.as<int64_t>()},
      counts_.numel());
}

void Histogram::add(const Tensor& x, const Tensor& low, const Tensor& high, const uint32_t* bad) {
  grow(low, high, bad);
  const bool bf16 = x.dtype() == dtypes::bf16;
  const int64_t cols = x.cols(), ldx = x.stride() * 8 / x.dtype().bits();
  const int64_t negative = sides_ == 2 ? kBins : 0;
  if (!current_device().is_cpu())
    return run_map(maps::HistogramCount{cols, ldx, x.data(), bf16, exponent(), negative, bad, counts_.as<int64_t>()},
                   x.numel());
  const float inverse = maps::q::histogram_inverse(maps::q::histogram_exponent(*exponent()));
  std::mutex mutex;
  parallel_ranges(x.rows(), std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, cols)),
                  [&](int64_t begin, int64_t end) {
                    std::vector<int64_t> local(static_cast<size_t>(counts_.numel()));
                    const void* const data = x.data();
                    for (int64_t r = begin; r < end; ++r) {
                      for (int64_t c = 0; c < cols; ++c) {
                        const float v = maps::load_float(data, bf16, r * ldx + c);
                        const int64_t bin = maps::q::histogram_bin(v, inverse);
                        ++local[static_cast<size_t>(bin + (v < 0 ? negative : 0))];
                      }
                    }
                    const std::lock_guard lock(mutex);
                    int64_t* counts = counts_.as<int64_t>();
                    for (size_t i = 0; i < local.size(); ++i) counts[i] += local[i];
                  });
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

}  // namespace bitgrad::detail
