#include "bench_step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"

// Plain loops that the compiler vectorizes, compiled for three instruction sets. They use nothing of the library.
#define BITGRAD_INLINE [[gnu::always_inline]] inline
#if defined(__x86_64__)
#define BITGRAD_FOR_EACH_ISA(call)                                                                        \
  if ((cpu_isa() & isa::kAvx512) != 0) {                                                                  \
    [&]() __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) { call; } \
    ();                                                                                                   \
  } else if ((cpu_isa() & isa::kAvx2) != 0) {                                                             \
    [&]() __attribute__((target("avx2,fma"))) { call; }                                                   \
    ();                                                                                                   \
  } else {                                                                                                \
    call;                                                                                                 \
  }
#else
#define BITGRAD_FOR_EACH_ISA(call) call
#endif

namespace bitgrad::bench::sweeps {

namespace {

constexpr int64_t kGrain = 1 << 16;

BITGRAD_INLINE void store(float value, float* out) { *out = value; }
BITGRAD_INLINE void store(float value, uint16_t* out) {  // round to nearest even
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  *out = static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

template <typename T>
BITGRAD_INLINE void signs(int64_t n, const float* x, T* out) {
  for (int64_t i = 0; i < n; ++i) store(x[i] >= 0 ? 1.0f : -1.0f, out + i);
}

template <typename T>
BITGRAD_INLINE void row_by_absmax(int64_t n, int qmax, const float* x, T* out) {
  constexpr int kLanes = 64;
  float largest[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      const float a = __builtin_fabsf(x[i + l]);
      largest[l] = a > largest[l] ? a : largest[l];
    }
  float top = 1e-12f;
  for (; i < n; ++i) top = __builtin_fabsf(x[i]) > top ? __builtin_fabsf(x[i]) : top;
  for (const float l : largest) top = l > top ? l : top;
  const float limit = static_cast<float>(qmax), s = top / limit, inverse = 1.0f / s;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  for (int64_t j = 0; j < n; ++j) {
    float q = (x[j] * inverse + kToInteger) - kToInteger;
    q = q > limit ? limit : q;
    q = q < -limit ? -limit : q;
    store(q * s, out + j);
  }
}

template <typename T>
void quantize_rows(int64_t rows, int64_t cols, int qmax, const float* x, T* out) {
  if (qmax == 0) {
    parallel_ranges(rows * cols, kGrain, [=](int64_t begin, int64_t end) {
      BITGRAD_FOR_EACH_ISA(signs(end - begin, x + begin, out + begin));
    });
    return;
  }
  parallel_ranges(rows, std::max<int64_t>(1, kGrain / cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) BITGRAD_FOR_EACH_ISA(row_by_absmax(cols, qmax, x + r * cols, out + r * cols));
  });
}

BITGRAD_INLINE void round_all(int64_t n, const float* x, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) store(x[i], out + i);
}

BITGRAD_INLINE void mask_all(int64_t n, const float* x, float* g) {
  for (int64_t i = 0; i < n; ++i) g[i] = __builtin_fabsf(x[i]) <= 1.0f ? g[i] : 0.0f;
}

BITGRAD_INLINE void squares(int64_t n, const float* g, double* out) {
  constexpr int kLanes = 64;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) sums[l] += g[i + l] * g[i + l];
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(g[i]) * g[i];
  for (const float s : sums) sum += s;
  *out = sum;
}

BITGRAD_INLINE void adam_all(int64_t n, const AdamStep& a, const float* __restrict g, float* __restrict w,
                             float* __restrict m, float* __restrict v) {
  constexpr float kBeta1 = 0.9f, kBeta2 = 0.999f, kEps = 1e-8f;
  const float factor = a.factor, lr = a.lr * a.c1, c2 = a.c2;
  for (int64_t i = 0; i < n; ++i) {
    const float x = g[i] * factor;
    const float mean = kBeta1 * m[i] + (1 - kBeta1) * x, square = kBeta2 * v[i] + (1 - kBeta2) * (x * x);
    m[i] = mean;
    v[i] = square;
    float moved = w[i] - lr * mean / (__builtin_sqrtf(square * c2) + kEps);
    moved = moved > 1.0f ? 1.0f : moved;
    w[i] = moved < -1.0f ? -1.0f : moved;
  }
}

}  // namespace

void fake_quantize(int64_t rows, int64_t cols, int qmax, const float* x, float* out) {
  quantize_rows(rows, cols, qmax, x, out);
}
void fake_quantize(int64_t rows, int64_t cols, int qmax, const float* x, uint16_t* out) {
  quantize_rows(rows, cols, qmax, x, out);
}

void to_bf16(int64_t n, const float* x, uint16_t* out) {
  parallel_ranges(n, kGrain, [=](int64_t begin, int64_t end) {
    BITGRAD_FOR_EACH_ISA(round_all(end - begin, x + begin, out + begin));
  });
}

void clip_mask(int64_t n, const float* x, float* g) {
  parallel_ranges(n, kGrain, [=](int64_t begin, int64_t end) {
    BITGRAD_FOR_EACH_ISA(mask_all(end - begin, x + begin, g + begin));
  });
}

double sum_of_squares(int64_t n, const float* g) {
  std::vector<double> sums(static_cast<size_t>((n + kGrain - 1) / kGrain));
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    double* out = &sums[static_cast<size_t>(begin / kGrain)];
    BITGRAD_FOR_EACH_ISA(squares(end - begin, g + begin, out));
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

void adam(int64_t n, const AdamStep& step, const float* g, float* w, float* m, float* v) {
  parallel_ranges(n, kGrain, [=](int64_t begin, int64_t end) {
    BITGRAD_FOR_EACH_ISA(adam_all(end - begin, step, g + begin, w + begin, m + begin, v + begin));
  });
}

}  // namespace bitgrad::bench::sweeps
