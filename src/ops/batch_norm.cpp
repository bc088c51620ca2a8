// Batch norm of x[..,f] with one statistic per feature (Ioffe and Szegedy 2015, arXiv 1502.03167), and tensor norm: a
// single mean and variance over all of x[n,f], with a single gain and bias (Xilinx brevitas, TensorNorm).
#include "ops/norm.h"

namespace bitgrad {
namespace {

template <bool kPerColumn>
struct Norm {
  static constexpr std::string_view kName = kPerColumn ? "batch_norm" : "tensor_norm";
  using Saved = NormSaved;
  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& options) {
    return norm_forward(kName, kPerColumn, s, in, options);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    norm_backward(kPerColumn, s, gy[0], g);
  }
};

}  // namespace

Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  if (x.dtype() == dtypes::int32) return integer_batch_norm(x, gamma, beta, options);
  return apply<Norm<true>>({x, gamma, beta}, options);
}

Var tensor_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  return apply<Norm<false>>({x, gamma, beta}, options);
}

}  // namespace bitgrad
