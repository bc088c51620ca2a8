// bias: the bias with which the mean of each output is that of the float layer (Nagel et al. 2019, arXiv 1906.04721,
// section 4.2, from samples). What layers before it have shifted is corrected, too.
#include "tools/ptq/method.h"

namespace bitgrad::detail {
namespace {

class Bias final : public PtqMethod {
 public:
  std::string_view name() const override { return "bias"; }
  std::string_view doc() const override { return "biases that keep the mean of each output"; }
  std::string refuses(const LayerData&, const LayerState& state) const override {
    return state.bias.empty() ? "it has no bias" : "";
  }
  LayerState layer(const LayerData& data, const LayerState& state, const PtqSpec&) const override {
    LayerState to = state;
    const int64_t part = data.w.rows / data.groups;
    for (int64_t o = 0; o < data.w.rows; ++o) {
      double mean = data.sums.y[static_cast<size_t>(o)];
      for (int64_t k = 0; k < data.w.cols; ++k)
        mean -= value_of(data, state, o, k) * data.sums.x[static_cast<size_t>(o / part)][static_cast<size_t>(k)];
      to.bias[static_cast<size_t>(o)] = static_cast<double>(static_cast<float>(mean));
    }
    return to;
  }
};

}  // namespace

std::unique_ptr<PtqMethod> make_Bias() { return std::make_unique<Bias>(); }

}  // namespace bitgrad::detail
