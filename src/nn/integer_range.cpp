#include "nn/integer_range.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kGrain = 16384;  // elements of one piece of work

}  // namespace

IntegerRange integer_range(const Tensor& x, bool per_row) {
  require(x.dtype() == dtypes::int32 && x.contiguous(), "range", "expected dense int32, got ", x);
  const int64_t rows = x.rows(), cols = x.cols();
  const ScaleMap map = x.scale_map();
  std::vector<float> low(static_cast<size_t>(rows), 0.0f), high(low);
  const int32_t* q = x.as<int32_t>();
  parallel_ranges(rows, std::max(int64_t{1}, kGrain / std::max(int64_t{1}, cols)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float least = 0, most = 0;
      for (int64_t c = 0; c < cols; ++c) {
        float v = static_cast<float>(q[r * cols + c]);
        if (map.scale != nullptr) v = v * map.scale[map.index(r, c)];
        least = c == 0 ? v : std::min(least, v);
        most = c == 0 ? v : std::max(most, v);
      }
      low[static_cast<size_t>(r)] = least;
      high[static_cast<size_t>(r)] = most;
    }
  });
  if (per_row) return {low, high};
  if (x.numel() == 0) return {{0.0f}, {0.0f}};
  return {{*std::min_element(low.begin(), low.end())}, {*std::max_element(high.begin(), high.end())}};
}

}  // namespace bitgrad::detail
