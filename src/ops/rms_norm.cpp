// RMS norm over the last axis of x (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4).
#include "ops/row_norm.h"

namespace bitgrad {
namespace {

struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  using Saved = RowNormSaved;
  static Tensor forward(Saved& s, std::span<const Tensor> in, float eps) {
    return row_norm_forward(kName, false, s, in, eps);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    row_norm_backward(false, s, gy[0], g);
  }
};

}  // namespace

Var rms_norm(const Var& x, const Var& gamma, float eps) { return apply<RmsNorm>({x, gamma}, eps); }

}  // namespace bitgrad
