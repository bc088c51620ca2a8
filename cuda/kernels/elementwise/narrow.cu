// Family elementwise: fp32 to bf16 and back, and optimizer moments in 8 and 4 bits (docs/numerics.md section 6;
// contracts: kernels/elementwise.h).
#include "bitgrad/dtype/bf16.h"
#include "cuda/device/philox.h"
#include "cuda/device/vectors.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "kernels/quantize/moment_codes.h"

namespace bitgrad::cuda {

using moment_codes::kPerByte;

// ---- y[i] = f(x[i]), four adjacent elements per thread if both are aligned to four
struct NearestBf16 {
  BITGRAD_DEVICE uint16_t operator()(int64_t, float x) const { return bf16_from_float(x); }
};
struct WidenBf16 {
  BITGRAD_DEVICE float operator()(int64_t, uint16_t x) const { return bf16_to_float(x); }
};
template <typename Code>
struct WidenMoment {
  const float* scales;
  BITGRAD_DEVICE float operator()(int64_t i, uint8_t byte) const {
    using Byte = typename Code::Byte;  // of element i alone, or of it and its neighbour
    const int32_t code = kPerByte<Code> == 1 ? static_cast<Byte>(byte) : moment_codes::half_of<Byte>(byte, i);
    return moment_codes::moment_of<Code>(code, scales[i / kMomentBlock]);
  }
};

// kShared adjacent elements share a value of x.
template <int kShared, typename F, typename From, typename To>
BITGRAD_GLOBAL void convert(F f, const From* x, To* y, int64_t n, bool by_four) {
  const int64_t step = thread_count(), packs = by_four ? n / 4 : 0;
  for (int64_t p = thread_index(); p < packs; p += step) {
    const Pack<From, 4 / kShared> in = load_pack<4 / kShared>(x + 4 / kShared * p);
    Pack<To, 4> out;
    for (int k = 0; k < 4; ++k) out.v[k] = f(4 * p + k, in.v[k / kShared]);
    store_pack<4>(y + 4 * p, out);
  }
  for (int64_t i = 4 * packs + thread_index(); i < n; i += step) y[i] = f(i, x[i / kShared]);
}

template <int kShared = 1, typename F, typename From, typename To>
void run_convert(const char* name, const F& f, const From* x, To* y, int64_t n) {
  const bool by_four = lies_on<4 / kShared>(x) && lies_on<4>(y);
  launch(convert<kShared, F, From, To>, cover(by_four ? ceil_div(n, 4) : n, name), f, x, y, n, by_four);
}

// ---- eight adjacent elements per thread: one block of draws
// Loads `count` (at most 8) values from x. `wide`: all eight, aligned to 16 bytes.
BITGRAD_DEVICE inline void load8(const float* x, int64_t count, bool wide, float* out) {
  if (wide) {
    const Pack<float, 4> a = load_pack<4>(x), b = load_pack<4>(x + 4);
    for (int k = 0; k < 4; ++k) {
      out[k] = a.v[k];
      out[4 + k] = b.v[k];
    }
    return;
  }
  for (int k = 0; k < 8; ++k) out[k] = k < count ? x[k] : 0.0f;
}
// Stores `count` (at most N) values to y. `wide`: all N, aligned to them.
template <typename T, int N>
BITGRAD_DEVICE inline void store_some(T* y, int64_t count, bool wide, const Pack<T, N>& values) {
  if (wide) return store_pack<N>(y, values);
  for (int k = 0; k < N; ++k)
    if (k < count) y[k] = values.v[k];
}

BITGRAD_GLOBAL void to_bf16_stochastic_kernel(RandomStream stream, uint64_t first, const float* x, uint16_t* y,
                                              int64_t n, bool aligned) {
  for (int64_t i = 8 * thread_index(); i < n; i += 8 * thread_count()) {
    const bool wide = aligned && i + 8 <= n;
    float in[8];
    load8(x + i, n - i, wide, in);
    const Draws8 draws = draws8(stream, first + static_cast<uint64_t>(i));
    Pack<uint16_t, 8> out;
    for (int k = 0; k < 8; ++k) out.v[k] = bf16_from_float_stochastic(in[k], draws.v[k]);
    store_some(y + i, n - i, wide, out);
  }
}

// Eight adjacent codes as bytes of q.
template <typename Code>
BITGRAD_DEVICE inline void store_codes(uint8_t* q, int64_t count, bool wide, const int32_t* codes) {
  constexpr int kBytes = 8 / kPerByte<Code>;
  Pack<uint8_t, kBytes> out;
  for (int k = 0; k < kBytes; ++k) {
    if constexpr (kPerByte<Code> == 1)
      out.v[k] = static_cast<uint8_t>(codes[k]);
    else
      out.v[k] = moment_codes::pair_of(codes[2 * k], codes[2 * k + 1]);
  }
  store_some(q, (count + kPerByte<Code> - 1) / kPerByte<Code>, wide, out);
}

// One warp per block of kMomentBlock values, eight per lane. The largest magnitude is found by comparing bits without
// the sign: NaN counts as larger than Inf, as on the CPU. Codes of values beyond n are 0.
template <typename Code>
BITGRAD_GLOBAL void narrow_moments_kernel(RandomStream stream, uint64_t first, const float* x, uint8_t* q,
                                          float* scales, int64_t n, bool aligned) {
  static_assert(kMomentBlock == 8 * 32);
  constexpr bool kSquares = moment_codes::kSquare<Code>;
  const uint16_t turn = moment_codes::turn_of(stream);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t b = thread_index() / 32; b * kMomentBlock < n; b += thread_count() / 32) {
    const int64_t i = b * kMomentBlock + lane * 8, count = n - i;  // count may be below 1
    const bool wide = aligned && count >= 8;
    float in[8];
    load8(x + i, count, wide, in);
    uint32_t top = 0;
    for (int k = 0; k < 8; ++k) {
      const uint32_t bits = __float_as_uint(in[k]) & 0x7FFFFFFFu;
      top = bits > top ? bits : top;
    }
    const float largest = __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, top));
    const float s = (kSquares ? sqrtf(largest) : largest) / Code::kLargest;
    const float scale = s < 0x1p-126f ? 0x1p-126f : s;
    const float inverse = 1.0f / scale;
    if (lane == 0) scales[b] = scale;
    const Draws8 draws = draws8(moment_codes::at_rest(stream), first + static_cast<uint64_t>(i));
    int32_t codes[8];
    for (int k = 0; k < 8; ++k) {
      const float size = kSquares ? sqrtf(in[k]) : (in[k] < 0.0f ? -in[k] : in[k]);
      const int32_t code = moment_codes::code_of<Code>(size * inverse, static_cast<uint16_t>(draws.v[k] + turn));
      const int32_t least = in[k] > 0.0f ? 1 : 0;
      codes[k] = kSquares ? (code < least ? least : code) : (in[k] < 0.0f ? -code : code);
    }
    store_codes<Code>(q + i / kPerByte<Code>, count, wide, codes);
  }
}

void to_bf16_cuda(int64_t n, const float* x, uint16_t* y) { run_convert("to_bf16_cuda", NearestBf16{}, x, y, n); }

void from_bf16_cuda(int64_t n, const uint16_t* x, float* y) { run_convert("from_bf16_cuda", WidenBf16{}, x, y, n); }

void to_bf16_stochastic_cuda(int64_t n, const float* x, const RandomStream& draws, uint64_t first, uint16_t* y) {
  const bool aligned = lies_on<4>(x) && lies_on<8>(y);
  launch(to_bf16_stochastic_kernel, cover(ceil_div(n, 8), "to_bf16_stochastic_cuda"), draws, first, x, y, n, aligned);
}

void narrow_moments_cuda(int64_t n, const float* x, const RandomStream& draws, uint64_t first, const MomentCodes& q) {
  moment_codes::with_code(q.bits, q.values, [&](auto code) {
    using Code = decltype(code);
    const bool aligned = lies_on<4>(x) && lies_on<8 / kPerByte<Code>>(q.codes);
    launch(narrow_moments_kernel<Code>, cover(ceil_div(n, kMomentBlock) * 32, "narrow_moments_cuda"), draws, first, x,
           q.codes, q.scales, n, aligned);
  });
}
void widen_moments_cuda(int64_t n, const MomentCodes& q, float* x) {
  moment_codes::with_code(q.bits, q.values, [&](auto code) {
    using Code = decltype(code);
    run_convert<kPerByte<Code>>("widen_moments_cuda", WidenMoment<Code>{q.scales}, q.codes, x, n);
  });
}

}  // namespace bitgrad::cuda
