// An op that consumes a result and supplies its gradient without a copy, as a following layer would.
#pragma once

#include "bitgrad/autograd/op.h"

namespace bitgrad::bench {

// x -> zeros of the shape `y`, whatever is in x; its gradient is gy.
struct GivenGradient {
  static constexpr std::string_view kName = "given_gradient";
  struct Saved {
    Tensor gy;
  };
  static Tensor forward(Saved& s, std::span<const Tensor>, const Tensor& gy, const Shape& y) {
    s.gy = gy;
    return Tensor::zeros(y, dtypes::fp32);
  }
  static void backward(Saved& s, std::span<const Tensor>, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set(s.gy);
  }
};

}  // namespace bitgrad::bench
