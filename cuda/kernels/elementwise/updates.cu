// Family elementwise: gradients of a window finished, and the update rules (docs/numerics.md section 6; contracts:
// bitgrad/kernels/elementwise.h).
#include "bitgrad/kernels/quantize.h"
#include "cuda/kernels/elementwise/elementwise_cuda.h"
#include "cuda/kernels/elementwise/pointwise.h"
#include "kernels/map/map.h"

namespace bitgrad::cuda {

// in: sum, and w where there are bounds.
template <bool kBounds>
struct FinishGradient {
  float divisor, lo, hi, clip;
  uint32_t* flags;
  BITGRAD_DEVICE void operator()(const float* in, float* out) const {
    const float sum = in[0];
    if (sum - sum != 0.0f) or_flag(flags, kFlagNonFinite);
    float x = sum / divisor;
    if (kBounds) x = in[1] >= lo && in[1] <= hi ? x : 0.0f;
    if (clip > 0) {
      x = -clip > x ? -clip : x;
      x = clip < x ? clip : x;
    }
    out[0] = x;
  }
};

// in: g, w, buffer where there is one; out: w, buffer.
// The learning rate of now.
BITGRAD_DEVICE inline float rate(float lr, const LiveStep* live, float factor) {
  return live != nullptr ? live->lr * factor : lr;
}

template <bool kMomentum>
struct Sgd {
  float by_value, mu, decay;
  bool nesterov;
  const LiveStep* live;
  float lr_factor;
  BITGRAD_DEVICE void operator()(const float* in, float* out) const {
    const float lr = rate(by_value, live, lr_factor);
    float g = in[0];
    if (decay != 0.0f) g = g + decay * in[1];
    float step = g;
    if constexpr (kMomentum) {
      const float b = mu * in[2] + g;
      out[1] = b;
      step = nesterov ? g + mu * b : b;
    }
    out[0] = in[1] - lr * step;
  }
};

// in: g, w, m, v; out: w, m, v. A division by 1 changes no bit, so it is left out.
struct Adam {
  AdamArgs p;
  float a1, a2;
  BITGRAD_DEVICE void operator()(const float* in, float* out) const {
    const float lr = rate(p.lr, p.live, p.lr_factor), decay = p.weight_decay;
    const float c1 = p.live != nullptr ? p.live->c1 : p.c1, c2 = p.live != nullptr ? p.live->c2 : p.c2;
    float g = in[0], w = in[1];
    if (decay != 0.0f) {
      if (p.decoupled) {
        w = w - (lr * decay) * w;
      } else {
        g = g + decay * w;
      }
    }
    const float m = p.b1 * in[2] + a1 * g;
    const float v = p.b2 * in[3] + (a2 * g) * g;
    out[1] = m;
    out[2] = v;
    const float mean = c1 == 1.0f ? m : m / c1, square = c2 == 1.0f ? v : v / c2;
    out[0] = w - lr * (mean / (sqrtf(square) + p.eps));
  }
};

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
    const float mean = (1.0f - rate_of_mean) * in[2] + rate_of_mean * in[0];
    out[1] = mean;
    out[0] = mean * in[1] > p.threshold ? -in[1] : in[1];
  }
};

void finish_gradient_cuda(const FinishGradientArgs& p) {
  constexpr const char* kName = "finish_gradient_cuda";
  if (p.w == nullptr) {
    const FinishGradient<false> f{p.divisor, p.lo, p.hi, p.clip_value, p.flags};
    return run_pointwise(kName, f, Streams<1, 1>{{p.g}, {p.g}}, p.n);
  }
  const FinishGradient<true> f{p.divisor, p.lo, p.hi, p.clip_value, p.flags};
  run_pointwise(kName, f, Streams<2, 1>{{p.g, p.w}, {p.g}}, p.n);
}

void sgd_update_cuda(const SgdArgs& p) {
  constexpr const char* kName = "sgd_update_cuda";
  float* const b = p.momentum_buffer;
  if (b == nullptr) {
    const Sgd<false> f{p.lr, p.mu, p.weight_decay, p.nesterov, p.live, p.lr_factor};
    return run_pointwise(kName, f, Streams<2, 1>{{p.g, p.w}, {p.w}}, p.n);
  }
  const Sgd<true> f{p.lr, p.mu, p.weight_decay, p.nesterov, p.live, p.lr_factor};
  run_pointwise(kName, f, Streams<3, 2>{{p.g, p.w, b}, {p.w, b}}, p.n);
}

void adam_update_cuda(const AdamArgs& p) {
  const Adam f{p, 1.0f - p.b1, 1.0f - p.b2};
  run_pointwise("adam_update_cuda", f, Streams<4, 3>{{p.g, p.w, p.m, p.v}, {p.w, p.m, p.v}}, p.n);
}

void bop_update_cuda(const BopArgs& p) {
  const Bop f{p};
  run_pointwise("bop_update_cuda", f, Streams<3, 2>{{p.g, p.w, p.m}, {p.w, p.m}}, p.n);
}

}  // namespace bitgrad::cuda
