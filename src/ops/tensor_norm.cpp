// Tensor norm: a single mean and variance over all of x[n,f], with a single gain and bias (Xilinx brevitas,
// TensorNorm).
#include "ops/norm.h"

namespace bitgrad {
namespace {

struct TensorNorm {
  static constexpr std::string_view kName = "tensor_norm";
  using Saved = NormSaved;
  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& options) {
    return norm_forward(kName, false, s, in, options);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    norm_backward(false, s, gy[0], g);
  }
};

}  // namespace

Var tensor_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  return apply<TensorNorm>({x, gamma, beta}, options);
}

}  // namespace bitgrad
