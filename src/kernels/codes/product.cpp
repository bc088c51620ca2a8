// Convolutions of codes straight to codes with AVX-512 VNNI: tiles of pixels times blocks of 16 channels stay in
// registers from the first product to the code.
#include "base/simd.h"
#include "kernels/codes.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,bmi2,prefer-vector-width=512")

namespace bitgrad::kernels::codes {
namespace {

#define BITGRAD_LOOPS_ISA 512
#include "kernels/codes/lanes.inc"
#undef BITGRAD_LOOPS_ISA
#undef BITGRAD_OP

// How the sums of a block become codes. kBounded: they are within 2^30.
template <Rule kRule, bool kBounded>
struct Output {
  const Stage& stage;
  int64_t channel;
  Bounds within;
  Scale scale = {};

  Output(const Stage& s, int64_t c) : stage(s), channel(c), within(bounds(s.zero, s.lo, s.hi)) {
    if constexpr (kBounded && kRule != Rule::kFloat)
      scale = scale_of<kRule>(load(s.m + c), minus(all(0), load(s.e + c)));
  }
  // Less zero, and perhaps not clamped.
  BITGRAD_INLINE I number(I sum, const Output& by) {
    if constexpr (kRule == Rule::kFloat) return by_float(sum, by.stage.factor + by.channel, by.within.lo, by.within.hi);
    if constexpr (kBounded) return scaled<kRule>(sum, by.scale);
    const I right = minus(all(0), load(by.stage.e + by.channel));
    return clamped(rounded<kRule>(sum, load(by.stage.m + by.channel), right), by.within.lo, by.within.hi);
  }
};

// Codes of 16 channels of a pixel, n of them to y.
BITGRAD_INLINE void store_pixel(int8_t* y, I number, const Bounds& b, int64_t n) {
  store_codes(y, plus(clamped(number, b.lo, b.hi), b.zero), n);
}

// Those of four pixels: narrowed with saturation, which leaves the order of codes, and clamped as bytes.
BITGRAD_INLINE void store_pixels(int8_t* y, int64_t step, I p0, I p1, I p2, I p3, const Stage& s) {
  const I zero = _mm512_set1_epi16(static_cast<int16_t>(s.zero));
  const I first = _mm512_adds_epi16(_mm512_packs_epi32(p0, p1), zero);
  const I second = _mm512_adds_epi16(_mm512_packs_epi32(p2, p3), zero);
  // 16 bytes of each pixel were spread over the four quarters.
  const I order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  I codes = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second));
  codes = _mm512_max_epi8(codes, _mm512_set1_epi8(static_cast<int8_t>(s.lo)));
  codes = _mm512_min_epi8(codes, _mm512_set1_epi8(static_cast<int8_t>(s.hi)));
  if (step == kBlock) return _mm512_storeu_si512(y, codes);
  auto* const to = reinterpret_cast<__m128i*>(y);
  _mm_storeu_si128(to, _mm512_castsi512_si128(codes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y + step), _mm512_extracti32x4_epi32(codes, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y + 2 * step), _mm512_extracti32x4_epi32(codes, 2));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y + 3 * step), _mm512_extracti32x4_epi32(codes, 3));
}

// kPixels pixels from x on, channels of `by`.
template <int kPixels, size_t kBlocks, typename By>
[[gnu::noinline]] void tile(const ProductCall& call, const uint8_t* x, int8_t* y, const By (&by)[kBlocks]) {
  I sums[kPixels][kBlocks];
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p)
#pragma GCC unroll 4
    for (size_t b = 0; b < kBlocks; ++b) sums[p][b] = load(call.stage.bias + by[b].channel);
  const int64_t groups = call.groups, step = call.x_pixel;
  const int8_t* w = call.w + by[0].channel * groups * 4;
  for (int64_t g = 0; g < groups; ++g, w += 64) {
    I weights[kBlocks];
#pragma GCC unroll 4
    for (size_t b = 0; b < kBlocks; ++b) weights[b] = _mm512_load_si512(w + static_cast<int64_t>(b) * groups * 64);
    const uint8_t* at = x + call.offset[g];
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; ++p, at += step) {
      int32_t four = 0;
      __builtin_memcpy(&four, at, sizeof four);
      const I codes = all(four);
#pragma GCC unroll 4
      for (size_t b = 0; b < kBlocks; ++b) {
        sums[p][b] = _mm512_dpbusd_epi32(sums[p][b], codes, weights[b]);
        asm("" : "+v"(sums[p][b]));  // else gcc copies each sum twice
      }
    }
  }
#pragma GCC unroll 4
  for (size_t b = 0; b < kBlocks; ++b) {
    const int64_t used = call.channels - by[b].channel;
    int8_t* const to = y + by[b].channel;
    if (kPixels >= 4 && used >= kBlock) {
#pragma GCC unroll 4
      for (int p = 0; p + 4 <= kPixels; p += 4)
        store_pixels(to + p * call.y_pixel, call.y_pixel, By::number(sums[p][b], by[b]),
                     By::number(sums[p + 1][b], by[b]), By::number(sums[p + 2][b], by[b]),
                     By::number(sums[p + 3][b], by[b]), call.stage);
      continue;
    }
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; ++p)
      store_pixel(to + p * call.y_pixel, By::number(sums[p][b], by[b]), by[b].within, used);
  }
}

// A line: as wide a tile as fits, then narrower ones.
template <int kPixels, size_t kBlocks, typename By>
void line(const ProductCall& call, const uint8_t* x, int8_t* y, const By (&by)[kBlocks], int64_t pixel) {
  for (; pixel + kPixels <= call.pixels; pixel += kPixels)
    tile<kPixels>(call, x + pixel * call.x_pixel, y + pixel * call.y_pixel, by);
  if constexpr (kPixels > 1)
    if (pixel < call.pixels) line<kPixels / 2>(call, x, y, by, pixel);
}

template <int kPixels, size_t kBlocks, typename By>
void lines(const ProductCall& call, const By (&by)[kBlocks]) {
  for (int64_t l = 0; l < call.lines; ++l)
    line<kPixels>(call, call.x + l * call.x_line, call.y + l * call.y_line, by, 0);
}

template <Rule kRule, bool kBounded>
void blocks(const ProductCall& call) {
  using By = Output<kRule, kBounded>;
  const Stage& s = call.stage;
  const int64_t end = call.channels;
  int64_t c = 0;
  for (; c + 3 * kBlock < end; c += 4 * kBlock)
    lines<4>(call, {By(s, c), By(s, c + kBlock), By(s, c + 2 * kBlock), By(s, c + 3 * kBlock)});
  for (; c + kBlock < end; c += 2 * kBlock) lines<8>(call, {By(s, c), By(s, c + kBlock)});
  for (; c < end; c += kBlock) lines<16>(call, {By(s, c)});
}

// Whether no sum reaches 2^30.
bool bounded(const ProductCall& call) {
  constexpr int64_t kMost = (int64_t{1} << 30) - 1, kMostProducts = int64_t{4} * 255 * 128;
  int64_t most = 0;
  for (int64_t j = 0; j < call.channels; ++j) {
    const int64_t bias = call.stage.bias[j], size = bias < 0 ? -bias : bias;
    most = size > most ? size : most;
  }
  return call.groups <= (kMost - most) / kMostProducts;
}

template <Rule kRule>
void run(const ProductCall& call) {
  if (kRule == Rule::kFloat || bounded(call)) return blocks<kRule, true>(call);
  blocks<kRule, false>(call);
}

}  // namespace

void product_codes(const ProductCall& call) {
  if (call.stage.rule == Rule::kDouble) return run<Rule::kDouble>(call);
  if (call.stage.rule == Rule::kSingle) return run<Rule::kSingle>(call);
  if (call.stage.rule == Rule::kRuy) return run<Rule::kRuy>(call);
  run<Rule::kFloat>(call);
}

}  // namespace bitgrad::kernels::codes

#pragma GCC pop_options
