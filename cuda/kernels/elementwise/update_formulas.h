// Element formulas of gradients and update rules, shared by the kernels of single rules (updates.cu) and the sweep that
// does a whole step (update_rows.h). docs/numerics.md section 6; contracts: kernels/elementwise.h.
#pragma once

#include "bitgrad/base/math.h"
#include "bitgrad/base/step_scalars.h"
#include "cuda/device/builtins.h"
#include "cuda/kernels/contracts.h"
#include "kernels/elementwise.h"
#include "kernels/map/map.h"
#include "kernels/quantize.h"

namespace bitgrad::cuda {

// Clamps x to [lo, hi]; NaN stays NaN.
BITGRAD_DEVICE inline float clamp_number(float x, float lo, float hi) {
  const float low = x < lo ? lo : x;
  return low > hi ? hi : low;
}

// in: sum, and w if there are bounds.
template <bool kBounds>
struct FinishGradient {
  float divisor, lo, hi, clip;
  uint32_t* flags;
  BITGRAD_DEVICE void operator()(const float* in, float* out) const {
    const float sum = in[0];
    if (sum - sum != 0.0f) or_flag(flags, kFlagNonFinite);
    float x = sum / divisor;
    if (kBounds) x = in[1] >= lo && in[1] <= hi ? x : 0.0f;
    out[0] = clip > 0 ? clamp_number(x, -clip, clip) : x;
  }
};

// The current learning rate.
BITGRAD_DEVICE inline float rate(float lr, const StepScalars* live, float factor) {
  return live != nullptr ? live->lr * factor : lr;
}

BITGRAD_DEVICE inline float decay_now(float decay, const StepScalars* live, float base) {
  return live != nullptr ? base * live->decay : decay;
}

// An update rule. in: g, w, and kStates state values; out: w, state. now() returns the rule with the values of
// StepScalars already loaded.
//
// Sgd: in: g, w, buffer if there is one; out: w, buffer.
template <bool kMomentum>
struct Sgd {
  static constexpr int kStates = kMomentum ? 1 : 0;
  float by_value, mu, decay_by_value;
  bool nesterov;
  const StepScalars* live;
  float lr_factor, base_decay, base_mu;
  BITGRAD_DEVICE float mu_now() const { return live != nullptr ? base_mu * live->momentum : mu; }
  BITGRAD_DEVICE Sgd now() const {
    return {rate(by_value, live, lr_factor),
            mu_now(),
            decay_now(decay_by_value, live, base_decay),
            nesterov,
            nullptr,
            1.0f,
            0.0f,
            0.0f};
  }
  BITGRAD_DEVICE void operator()(const float* in, float* out) const {
    const float lr = rate(by_value, live, lr_factor), decay = decay_now(decay_by_value, live, base_decay);
    float g = in[0];
    if (decay != 0.0f) g = g + decay * in[1];
    float step = g;
    if constexpr (kMomentum) {
      const float m = mu_now(), b = m * in[2] + g;
      out[1] = b;
      step = nesterov ? g + m * b : b;
    }
    out[0] = in[1] - lr * step;
  }
};

template <bool kMomentum>
inline Sgd<kMomentum> sgd_rule(const SgdArgs& p) {
  return {p.lr, p.mu, p.weight_decay, p.nesterov, p.live, p.lr_factor, p.base_decay, p.base_mu};
}

// in: g, w, m, v; out: w, m, v. Division by 1 is skipped, since it changes no bit.
struct Adam {
  static constexpr int kStates = 2;
  AdamArgs p;
  BITGRAD_DEVICE Adam now() const {
    Adam out = *this;
    out.p.live = nullptr;
    out.p.lr = rate(p.lr, p.live, p.lr_factor);
    if (p.live == nullptr) return out;
    out.p.weight_decay = decay_now(p.weight_decay, p.live, p.base_decay);
    out.p.c1 = p.live->age[p.age].c1;
    out.p.c2 = p.live->age[p.age].c2;
    return out;
  }
  BITGRAD_DEVICE void operator()(const float* in, float* out) const {
    const float lr = rate(p.lr, p.live, p.lr_factor), decay = decay_now(p.weight_decay, p.live, p.base_decay);
    const float c1 = p.live != nullptr ? p.live->age[p.age].c1 : p.c1;
    const float c2 = p.live != nullptr ? p.live->age[p.age].c2 : p.c2;
    float g = in[0], w = in[1];
    if (decay != 0.0f) {
      if (p.decoupled) {
        w = w - (lr * decay) * w;
      } else {
        g = g + decay * w;
      }
    }
    const float m = math::lerp(in[2], g, p.a1, p.b1);
    const float v = math::lerp(in[3], g * g, p.a2, p.b2);
    out[1] = m;
    out[2] = v;
    const float mean = c1 == 1.0f ? m : m / c1, square = c2 == 1.0f ? v : v / c2;
    out[0] = w - lr * (mean / (sqrtf(square) + p.eps));
  }
};

inline Adam adam_rule(const AdamArgs& p) { return {p}; }

}  // namespace bitgrad::cuda
