// Parts of the straight-through rules shared by the quantizers and the op quantize. docs/numerics.md section 3.
#pragma once

#include <algorithm>

#include "bitgrad/base/parallel.h"
#include "bitgrad/quant/quantizer.h"
#include "quant/map/gradients.h"

namespace bitgrad::detail {

// out[r,c] = g[r,c] * scale of (r,c); `params` have no zero point or offset. A copy if all scales are 1. fp32, dense;
// out may alias g.
void times_scale(const QuantParams& params, const Tensor& g, const Tensor& out);

// gx = g * slope(x) of rule tanh with sharpness t, plus `sum` if it is not nullptr. fp32, n elements; sum may alias gx.
void tanh_gradient(float t, const float* x, const float* g, const float* sum, int64_t n, float* gx);

// Checks the tensors of leaf_backward: x, g_value and g_x are fp32, dense, of one shape; g_learned is empty or has one
// fp32 tensor with one value per block for each learned part.
void check_leaf(const Quantizer& quantizer, const QuantSpec& spec, const QuantParams& params, const Tensor& x,
                const Tensor& g_value, const Tensor& g_x, std::span<const Tensor> g_learned);

// Maps elements of x to their params: scale and statistic of element (r,c) are at map().index(r, c).
class BlockMap {
 public:
  BlockMap(const QuantParams& params, const Tensor& x);
  const ScaleMap& map() const { return map_; }
  // Throws Error if the params have none.
  const float* statistic() const;

 private:
  Tensor scaled_;
  ScaleMap map_;
};

// Calls body(e, j) for every element e = r * cols + c of [rows, cols], where j is the index of its params.
template <typename Body>
void for_elements(int64_t rows, int64_t cols, const ScaleMap& map, Body&& body) {
  constexpr int64_t kGrain = 16384;  // elements per work item
  parallel_ranges(rows, std::max(int64_t{1}, kGrain / std::max(int64_t{1}, cols)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = r / map.row_group * map.row_step, width = map.col_step == 0 ? cols : map.col_group;
      if (width == 1) {
        for (int64_t c = 0; c < cols; ++c) body(r * cols + c, row + c * map.col_step);
        continue;
      }
      for (int64_t c = 0, j = row; c < cols; j += map.col_step)
        for (const int64_t stop = std::min(cols, c + width); c < stop; ++c) body(r * cols + c, j);
    }
  });
}

// Runs map over the elements of [rows, elements.cols] on the current device. The CPU tracks the block of each element
// incrementally instead of computing it.
template <typename Map>
void run_elements(const Map& map, const maps::q::Elements& elements, int64_t rows) {
  if (!current_device().is_cpu()) return run_map(map, rows * elements.cols);
  for_elements(rows, elements.cols, elements.map, [&](int64_t e, int64_t j) { map.at(e, j); });
}
template <typename Map>
void run_elements(const Map& map, int64_t rows) {
  run_elements(map, map.elements, rows);
}

}  // namespace bitgrad::detail
