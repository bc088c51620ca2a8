// Family elementwise: finishes the gradients of a window, and the update rules, each in its own kernel.
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/elementwise/pointwise.h"
#include "cuda/kernels/elementwise/update_formulas.h"

namespace bitgrad::cuda {

// in: g, w, m; out: w, m.
struct Bop {
  BopArgs p;
  BITGRAD_DEVICE float gamma() const {
    if (p.live == nullptr) return p.gamma;
    const double share = static_cast<double>(rate(0, p.live, p.lr_factor)) / p.base_lr;
    const double gamma = static_cast<double>(p.base_gamma) * share;
    return static_cast<float>(gamma < 1.0 ? gamma : 1.0);
  }
  BITGRAD_DEVICE void operator()(const float* in, float* out) const {
    const float rate_of_mean = gamma();
    const float mean = math::lerp(in[2], in[0], rate_of_mean, 1.0f - rate_of_mean);
    out[1] = mean;
    out[0] = mean * in[1] > p.threshold ? -in[1] : in[1];
  }
};

bool finish_gradient_cuda(const FinishGradientArgs& p) {
  constexpr const char* kName = "finish_gradient_cuda";
  if (p.w == nullptr) {
    const FinishGradient<false> f{p.divisor, p.lo, p.hi, p.clip_value, p.flags};
    run_pointwise(kName, f, Streams<1, 1>{{p.g}, {p.g}}, p.n);
    return true;
  }
  const FinishGradient<true> f{p.divisor, p.lo, p.hi, p.clip_value, p.flags};
  run_pointwise(kName, f, Streams<2, 1>{{p.g, p.w}, {p.g}}, p.n);
  return true;
}

void sgd_update_cuda(const SgdArgs& p) {
  constexpr const char* kName = "sgd_update_cuda";
  float* const b = p.momentum_buffer;
  if (b == nullptr) {
    return run_pointwise(kName, sgd_rule<false>(p), Streams<2, 1>{{p.g, p.w}, {p.w}}, p.n);
  }
  run_pointwise(kName, sgd_rule<true>(p), Streams<3, 2>{{p.g, p.w, b}, {p.w, b}}, p.n);
}

void adam_update_cuda(const AdamArgs& p) {
  run_pointwise("adam_update_cuda", adam_rule(p), Streams<4, 3>{{p.g, p.w, p.m, p.v}, {p.w, p.m, p.v}}, p.n);
}

void bop_update_cuda(const BopArgs& p) {
  const Bop f{p};
  run_pointwise("bop_update_cuda", f, Streams<3, 2>{{p.g, p.w, p.m}, {p.w, p.m}}, p.n);
}

}  // namespace bitgrad::cuda
