// Family elementwise: pointwise functions, sums and tables (the rest is in conversions.cpp and updates.cpp). Splits the
// work and calls the loops of the allowed ISA.
#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
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

constexpr void (*kForward64[])(int64_t, const double*, double*) = {
#define BITGRAD_UNARY(name, value, derivative)   \
  [](int64_t n, const double* in, double* out) { \
    using T = double;                            \
    for (int64_t i = 0; i < n; ++i) {            \
      const T x = in[i];                         \
      out[i] = (value);                          \
    }                                            \
  },
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
};
constexpr void (*kBackward64[])(int64_t, const double*, const double*, double*) = {
#define BITGRAD_UNARY(name, value, derivative)                    \
  [](int64_t n, const double* in, const double* gy, double* gx) { \
    using T = double;                                             \
    for (int64_t i = 0; i < n; ++i) {                             \
      const T x = in[i];                                          \
      [[maybe_unused]] const T y = (value);                       \
      gx[i] = gy[i] * (derivative);                               \
    }                                                             \
  },
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
};

// body(begin, end) for each cut of n elements; for each piece of it if x is bf16.
template <typename Body>
void cut_floats(int64_t n, const FloatsIn& x, Body&& body) {
  cut(n, [&](int64_t begin, int64_t end) {
    if (!x.bf16()) return body(begin, end);
    for_pieces(end - begin, [&](int64_t i, int64_t count) { body(begin + i, begin + i + count); });
  });
}

}  // namespace

void cpu::unary_forward(UnaryOp op, int64_t n, const FloatsIn& x, const FloatsOut& y) {
  const auto loop = elementwise::loops().unary_forward[static_cast<int>(op)];
  const auto loop64 = kForward64[static_cast<int>(op)];
  cut_floats(n, x, [&](int64_t i, int64_t end) {
    if (x.dtype == dtypes::fp64)
      return loop64(end - i, static_cast<const double*>(x.data) + i, static_cast<double*>(y.data) + i);
    alignas(64) float space[kFloatPiece];
    float* const out = place_floats(y, i, space);
    loop(end - i, read_floats(x, i, end - i, space), out);
    write_floats(y, i, end - i, out);
  });
}

void cpu::unary_backward(UnaryOp op, int64_t n, const FloatsIn& x, const FloatsIn& gy, const FloatsOut& gx) {
  const auto loop = elementwise::loops().unary_backward[static_cast<int>(op)];
  const auto loop64 = kBackward64[static_cast<int>(op)];
  cut_floats(n, x, [&](int64_t i, int64_t end) {
    if (x.dtype == dtypes::fp64)
      return loop64(end - i, static_cast<const double*>(x.data) + i, static_cast<const double*>(gy.data) + i,
                    static_cast<double*>(gx.data) + i);
    alignas(64) float space[kFloatPiece];
    loop(end - i, read_floats(x, i, end - i, space), gy.fp32() + i, gx.fp32() + i);
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
