// Family elementwise: pointwise functions, sums, products and tables (contracts: kernels/elementwise.h).
#include "cuda/kernels/elementwise/pointwise.h"

#include "bitgrad/base/math.h"
#include "bitgrad/dtype/bf16.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/elementwise/update_formulas.h"

namespace bitgrad::cuda {

BITGRAD_DEVICE inline float tanh_of(float x) { return math::tanh(x); }
BITGRAD_DEVICE inline float exp_of(float x) { return math::exp(x); }

#define BITGRAD_UNARY(name, value, derivative)                          \
  template <bool kBackward>                                             \
  struct Unary_##name {                                                 \
    BITGRAD_DEVICE void operator()(const float* in, float* out) const { \
      using T = float;                                                  \
      const T x = in[0];                                                \
      [[maybe_unused]] const T y = (value);                             \
      if constexpr (kBackward)                                          \
        out[0] = in[1] * (derivative);                                  \
      else                                                              \
        out[0] = y;                                                     \
    }                                                                   \
  };
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY

struct Add {
  BITGRAD_DEVICE void operator()(const float* x, float* y) const { y[0] = x[0] + x[1]; }
};
struct Mul {
  BITGRAD_DEVICE void operator()(const float* x, float* y) const { y[0] = x[0] * x[1]; }
};
struct Scale {
  float s;
  BITGRAD_DEVICE void operator()(const float* x, float* y) const { y[0] = x[0] * s; }
};
struct Divide {
  float divisor;
  BITGRAD_DEVICE void operator()(const float* x, float* y) const { y[0] = x[0] / divisor; }
};
struct Clamp {
  float lo, hi;
  BITGRAD_DEVICE void operator()(const float* x, float* y) const { y[0] = clamp_number(x[0], lo, hi); }
};

// For x in bf16: f(values, result) as above, with gy if kBackward; y in bf16 or fp32.
template <typename F, bool kBackward>
BITGRAD_GLOBAL void pointwise_bf16(F f, const uint16_t* x, const float* gy, void* y, int64_t n) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const float in[2] = {bf16_to_float(x[i]), kBackward ? gy[i] : 0.0f};
    float out[1];
    f(in, out);
    if (kBackward)
      static_cast<float*>(y)[i] = out[0];
    else
      static_cast<uint16_t*>(y)[i] = bf16_from_float(out[0]);
  }
}

// y = f(x), or the gradient y = f(x, gy).
template <bool kBackward, typename F>
void run_unary(const char* name, const F& f, int64_t n, const FloatsIn& x, const FloatsIn& gy, const FloatsOut& y) {
  if (x.bf16())
    launch(pointwise_bf16<F, kBackward>, cover(n, name), f, static_cast<const uint16_t*>(x.data), gy.fp32(), y.data, n);
  else if constexpr (kBackward)
    run_pointwise(name, f, Streams<2, 1>{{x.fp32(), gy.fp32()}, {y.fp32()}}, n);
  else
    run_pointwise(name, f, Streams<1, 1>{{x.fp32()}, {y.fp32()}}, n);
}

template <bool kBackward>
void run_unary(UnaryOp op, int64_t n, const FloatsIn& x, const FloatsIn& gy, const FloatsOut& y) {
  if (x.dtype == dtypes::fp64) bitgrad::detail::fail_fp64_on_device(kBackward ? "unary_backward" : "unary_forward");
  switch (op) {
#define BITGRAD_UNARY(name, value, derivative)                                                                \
  case UnaryOp::name:                                                                                         \
    return run_unary<kBackward>(kBackward ? "unary_backward_" #name "_cuda" : "unary_forward_" #name "_cuda", \
                                Unary_##name<kBackward>{}, n, x, gy, y);
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
    case UnaryOp::kCount:
      break;
  }
}

void unary_forward_cuda(UnaryOp op, int64_t n, const FloatsIn& x, const FloatsOut& y) {
  run_unary<false>(op, n, x, {}, y);
}
void unary_backward_cuda(UnaryOp op, int64_t n, const FloatsIn& x, const FloatsIn& gy, const FloatsOut& gx) {
  run_unary<true>(op, n, x, gy, gx);
}

void add_cuda(int64_t n, const float* a, const float* b, float* y) {
  run_pointwise("add_cuda", Add{}, Streams<2, 1>{{a, b}, {y}}, n);
}
void mul_cuda(int64_t n, const float* a, const float* b, float* y) {
  run_pointwise("mul_cuda", Mul{}, Streams<2, 1>{{a, b}, {y}}, n);
}
void scale_cuda(int64_t n, const float* x, float s, float* y) {
  run_pointwise("scale_cuda", Scale{s}, Streams<1, 1>{{x}, {y}}, n);
}
void divide_cuda(int64_t n, float* x, float divisor) {
  run_pointwise("divide_cuda", Divide{divisor}, Streams<1, 1>{{x}, {x}}, n);
}
void clamp_cuda(int64_t n, float lo, float hi, float* x) {
  run_pointwise("clamp_cuda", Clamp{lo, hi}, Streams<1, 1>{{x}, {x}}, n);
}

}  // namespace bitgrad::cuda
