// Batch norm of x[..,f] with one statistic per feature (Ioffe and Szegedy 2015, arXiv 1502.03167).
#include "ops/integer_norm.h"
#include "ops/norm.h"

namespace bitgrad {
namespace {

struct BatchNorm {
  static constexpr std::string_view kName = "batch_norm";
  using Saved = NormSaved;
  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& options) {
    return norm_forward(kName, true, s, in, options);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    norm_backward(true, s, gy[0], g);
  }
};

}  // namespace

Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  if (x.dtype() == dtypes::int32) return integer_batch_norm(x, gamma, beta, options);
  return apply<BatchNorm>({x, gamma, beta}, options);
}

}  // namespace bitgrad
