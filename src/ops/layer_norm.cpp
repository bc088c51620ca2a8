// Layer norm over the last axis of x (Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation 3).
#include "ops/row_norm.h"

namespace bitgrad {
namespace {

struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm";
  using Saved = RowNormSaved;
  static Tensor forward(Saved& s, std::span<const Tensor> in, float eps) {
    return row_norm_forward(kName, true, s, in, eps);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    row_norm_backward(true, s, gy[0], g);
  }
};

}  // namespace

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float eps) {
  if (!beta.defined()) return apply<LayerNorm>({x, gamma}, eps);
  return apply<LayerNorm>({x, gamma, beta}, eps);
}

}  // namespace bitgrad
