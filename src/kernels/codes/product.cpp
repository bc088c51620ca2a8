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

// kPixels pixels from x on, channels [first, first + 16 * kBlocks).
template <Rule kRule, int kPixels, int kBlocks>
void tile(const ProductCall& call, const uint8_t* x, int8_t* y, int64_t first_channel) {
  I sums[kPixels][kBlocks];
  for (auto& pixel : sums)
    for (I& sum : pixel) sum = all(0);
  const int64_t groups = call.groups, step = call.x_pixel;
  const int8_t* w = call.w + first_channel * groups * 4;
  for (int64_t g = 0; g < groups; ++g, w += 64) {
    I weights[kBlocks];
    for (int b = 0; b < kBlocks; ++b) weights[b] = _mm512_load_si512(w + b * groups * 64);
    const uint8_t* at = x + call.offset[g];
    for (int p = 0; p < kPixels; ++p, at += step) {
      int32_t four = 0;
      __builtin_memcpy(&four, at, sizeof four);
      const I codes = all(four);
      for (int b = 0; b < kBlocks; ++b) sums[p][b] = _mm512_dpbusd_epi32(sums[p][b], codes, weights[b]);
    }
  }
  const Bounds within = bounds(call.stage.zero, call.stage.lo, call.stage.hi);
  for (int b = 0; b < kBlocks; ++b) {
    const int64_t c = first_channel + b * kBlock;
    const I bias = load(call.stage.bias + c);
    for (int p = 0; p < kPixels; ++p)
      store_codes(y + p * call.y_pixel + c, coded<kRule>(plus(sums[p][b], bias), call.stage, c, within),
                  call.channels - c);
  }
}

// A line, for blocks from `first_channel` on: as wide a tile as fits, then narrower ones.
template <Rule kRule, int kPixels, int kBlocks>
void line(const ProductCall& call, const uint8_t* x, int8_t* y, int64_t first_channel, int64_t pixel) {
  for (; pixel + kPixels <= call.pixels; pixel += kPixels)
    tile<kRule, kPixels, kBlocks>(call, x + pixel * call.x_pixel, y + pixel * call.y_pixel, first_channel);
  if constexpr (kPixels > 1)
    if (pixel < call.pixels) line<kRule, kPixels / 2, kBlocks>(call, x, y, first_channel, pixel);
}

template <Rule kRule>
void lines(const ProductCall& call) {
  const int64_t blocks = (call.channels + kBlock - 1) / kBlock;
  for (int64_t l = 0; l < call.lines; ++l) {
    const uint8_t* const x = call.x + l * call.x_line;
    int8_t* const y = call.y + l * call.y_line;
    int64_t b = 0;
    for (; b + 4 <= blocks; b += 4) line<kRule, 4, 4>(call, x, y, b * kBlock, 0);
    for (; b + 2 <= blocks; b += 2) line<kRule, 8, 2>(call, x, y, b * kBlock, 0);
    for (; b < blocks; ++b) line<kRule, 16, 1>(call, x, y, b * kBlock, 0);
  }
}

}  // namespace

void product_codes(const ProductCall& call) {
  if (call.stage.rule == Rule::kDouble) return lines<Rule::kDouble>(call);
  if (call.stage.rule == Rule::kSingle) return lines<Rule::kSingle>(call);
  if (call.stage.rule == Rule::kRuy) return lines<Rule::kRuy>(call);
  lines<Rule::kFloat>(call);
}

}  // namespace bitgrad::kernels::codes

#pragma GCC pop_options
