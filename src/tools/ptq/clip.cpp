// clip: the scale of each row (or group) with the least error of the values instead of the scheme's.
#include <algorithm>

#include "bitgrad/base/parallel.h"
#include "tools/ptq/method.h"

namespace bitgrad::detail {
namespace {

class Clip final : public PtqMethod {
 public:
  std::string_view name() const override { return "clip"; }
  std::string_view doc() const override { return "scales that clip the largest weights, by the least squared error"; }
  std::string refuses(const LayerData& data, const LayerState& state) const override {
    if (data.grid.fixed) return "its scales are fixed";
    return state.zeros.empty() && state.offsets.empty() ? "" : "its codes have zero points or offsets";
  }
  LayerState layer(const LayerData& data, const LayerState& state, const PtqSpec&) const override {
    LayerState to = state;
    to.searched = true;
    for (int64_t begin = 0; begin < data.w.cols; begin += data.grid.block)
      search_scales(data, data.w, {0, data.w.rows, begin, std::min(begin + data.grid.block, data.w.cols)}, to);
    parallel_ranges(data.w.rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        for (int64_t k = 0; k < data.w.cols; ++k)
          to.codes[o][k] = nearest_code(data, to, data.scale_of(o, k), data.w[o][k]);
    });
    return to;
  }
};

}  // namespace

std::unique_ptr<PtqMethod> make_Clip() { return std::make_unique<Clip>(); }

}  // namespace bitgrad::detail
