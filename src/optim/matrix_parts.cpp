#include "optim/matrix_parts.h"

#include <algorithm>
#include <numeric>

#include "bitgrad/base/error.h"

namespace bitgrad::detail {

std::vector<int64_t> stacked_rows(const Parameter& p) {
  const int64_t rows = p.shape().rows(), matrices = p.spec().matrices;
  if (matrices > 0) {
    require(rows % matrices == 0, "optimizer", "parameter '", p.path(), "' (", p.shape(), "): got matrices ", matrices,
            ", expected a divisor of its ", rows, " rows");
    return std::vector<int64_t>(static_cast<size_t>(matrices), rows / matrices);
  }
  const std::vector<int64_t>& asked = p.stacked();
  const bool fits = std::accumulate(asked.begin(), asked.end(), int64_t{0}) == rows;
  return fits && !asked.empty() ? asked : std::vector<int64_t>{rows};
}

std::vector<int> owners_of(std::span<const int64_t> costs, int ranks) {
  std::vector<size_t> heaviest_first(costs.size());
  std::iota(heaviest_first.begin(), heaviest_first.end(), size_t{0});
  std::stable_sort(heaviest_first.begin(), heaviest_first.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<int64_t> loads(static_cast<size_t>(ranks), 0);
  std::vector<int> owners(costs.size());
  for (const size_t i : heaviest_first) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += costs[i];
    owners[i] = static_cast<int>(least - loads.begin());
  }
  return owners;
}

}  // namespace bitgrad::detail
