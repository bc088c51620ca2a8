// Family elementwise: pointwise functions, sums and tables (the rest is in conversions.cpp and updates.cpp). Splits the
// work and calls the loops of the allowed ISA.
#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
#include "kernels/fused_elementwise.h"
#include "kernels/kernel_table.h"

namespace bitgrad {

std::string_view unary_name(UnaryOp op) {
  static constexpr std::string_view kNames[] = {
#define BITGRAD_UNARY(name, value, derivative) #name,
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
  };
  return kNames[static_cast<int>(op)];
}

}  // namespace bitgrad

namespace bitgrad::kernels {
namespace {

double tanh_of(double x) { return std::tanh(x); }
double exp_of(double x) { return std::exp(x); }

using Forward64 = void (*)(int64_t, const double*, double*);
using Backward64 = void (*)(int64_t, const double*, const double*, double*);

#define BITGRAD_UNARY(name, value, derivative)                                        \
  void forward64_##name(int64_t n, const double* in, double* out) {                   \
    using T = double;                                                                 \
    for (int64_t i = 0; i < n; ++i) {                                                 \
      const T x = in[i];                                                              \
      out[i] = (value);                                                               \
    }                                                                                 \
  }                                                                                   \
  void backward64_##name(int64_t n, const double* in, const double* gy, double* gx) { \
    using T = double;                                                                 \
    for (int64_t i = 0; i < n; ++i) {                                                 \
      const T x = in[i];                                                              \
      [[maybe_unused]] const T y = (value);                                           \
      gx[i] = gy[i] * (derivative);                                                   \
    }                                                                                 \
  }
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY

constexpr Forward64 kForward64[] = {
#define BITGRAD_UNARY(name, value, derivative) forward64_##name,
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
};
constexpr Backward64 kBackward64[] = {
#define BITGRAD_UNARY(name, value, derivative) backward64_##name,
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
};

}  // namespace

void cpu::unary_forward(UnaryOp op, int64_t n, const float* x, float* y) {
  const auto loop = elementwise::loops().unary_forward[static_cast<int>(op)];
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, y + i); });
}

void unary_forward(UnaryOp op, int64_t n, const double* x, double* y) {
  if (!current_device().is_cpu()) detail::fail_fp64_on_device("unary_forward");
  const auto loop = kForward64[static_cast<int>(op)];
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, y + i); });
}

void cpu::unary_backward(UnaryOp op, int64_t n, const float* x, const float* gy, float* gx) {
  const auto loop = elementwise::loops().unary_backward[static_cast<int>(op)];
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, gy + i, gx + i); });
}

void unary_backward(UnaryOp op, int64_t n, const double* x, const double* gy, double* gx) {
  if (!current_device().is_cpu()) detail::fail_fp64_on_device("unary_backward");
  const auto loop = kBackward64[static_cast<int>(op)];
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, gy + i, gx + i); });
}

namespace {

// Calls body(i, count) for consecutive pieces of n elements.
template <typename Body>
void cut_pieces(int64_t n, Body&& body) {
  cut(n, [&](int64_t begin, int64_t end) {
    for_pieces(end - begin, [&](int64_t i, int64_t count) { body(begin + i, count); });
  });
}

}  // namespace

void cpu::unary_forward_bf16(UnaryOp op, int64_t n, const uint16_t* x, uint16_t* y) {
  const auto& loops = elementwise::loops();
  const auto loop = loops.unary_forward[static_cast<int>(op)];
  cut_pieces(n, [&](int64_t i, int64_t count) {
    alignas(64) float wide[kFloatPiece];
    loops.from_bf16(count, x + i, wide);
    loop(count, wide, wide);
    loops.to_bf16(count, wide, y + i);
  });
}

void cpu::unary_backward_bf16(UnaryOp op, int64_t n, const uint16_t* x, const float* gy, float* gx) {
  const auto& loops = elementwise::loops();
  const auto loop = loops.unary_backward[static_cast<int>(op)];
  cut_pieces(n, [&](int64_t i, int64_t count) {
    alignas(64) float wide[kFloatPiece];
    loops.from_bf16(count, x + i, wide);
    loop(count, wide, gy + i, gx + i);
  });
}

void cpu::add(int64_t n, const float* a, const float* b, float* y) {
  const auto loop = elementwise::loops().add;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, a + i, b + i, y + i); });
}

void cpu::tanh_gradient(int64_t n, float t, const float* x, const float* g, const float* sum, float* gx) {
  const auto loop = elementwise::loops().tanh_gradient;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, t, x + i, g + i, sum != nullptr ? sum + i : nullptr, gx + i); });
}

void cpu::mul(int64_t n, const float* a, const float* b, float* y) {
  const auto loop = elementwise::loops().mul;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, a + i, b + i, y + i); });
}

void cpu::scale(int64_t n, const float* x, float s, float* y) {
  const auto loop = elementwise::loops().scale;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, s, y + i); });
}

void cpu::divide(int64_t n, float* x, float divisor) {
  const auto loop = elementwise::loops().divide;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, x + i, divisor); });
}

void cpu::clamp(int64_t n, float lo, float hi, float* x) {
  const auto loop = elementwise::loops().clamp;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, lo, hi, x + i); });
}

}  // namespace bitgrad::kernels
