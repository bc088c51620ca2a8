// Additions to family conv for convolutions: padding pixels, scales per tap, and integer sums that become gradients.
// docs/numerics.md sections 4 and 5; src/ops/product/windows.h.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// A padding pixel: code i of `count` is zero[i * step], or `raw` if there are no zero points. Index: 64-bit word.
struct PadCodes {
  const int32_t* zero;
  int64_t step, count;
  uint32_t raw;
  int bits;
  uint64_t* out;

  BITGRAD_HD void operator()(int64_t word) const {
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    uint64_t value = 0;
    for (int64_t i = word * 64 / bits; i < count && i * bits < (word + 1) * 64; ++i) {
      const uint64_t code = (zero != nullptr ? static_cast<uint64_t>(int64_t{zero[i * step]}) : raw) & mask;
      const int64_t at = i * bits - word * 64;
      value |= at >= 0 ? code << at : code >> -at;
    }
    out[word] = value;
  }
};

// Float values of a padding pixel.
struct PadFloats {
  float value;
  bool bf16;
  void* out;

  BITGRAD_HD void operator()(int64_t i) const {
    if (bf16) {
      static_cast<uint16_t*>(out)[i] = bf16_from_float(value);
    } else {
      static_cast<float*>(out)[i] = value;
    }
  }
};

// Signs as ternary codes: raw 1 -> 01, raw 0 -> 11. Rows of `count` codes. Index: 64-bit word of the result.
struct SignsToTernary {
  const uint64_t* in;
  int64_t in_words, count;
  uint64_t* out;
  int64_t out_words;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t row = i / out_words, word = i - row * out_words, left = count - word * 32;
    const auto half = static_cast<uint32_t>(in[row * in_words + word / 2] >> (word % 2 * 32));
    uint64_t minus = ~half;
    minus &= 0xFFFFFFFFu;
    minus = (minus | minus << 16) & 0x0000FFFF0000FFFFu;
    minus = (minus | minus << 8) & 0x00FF00FF00FF00FFu;
    minus = (minus | minus << 4) & 0x0F0F0F0F0F0F0F0Fu;
    minus = (minus | minus << 2) & 0x3333333333333333u;
    minus = (minus | minus << 1) & 0x5555555555555555u;
    const uint64_t codes = 0x5555555555555555u | minus << 1;
    out[i] = left >= 32 ? codes : codes & ((uint64_t{1} << (left * 2)) - 1);
  }
};

// out[i] = in[first + i % count]: scales or zero points of the channels, repeated for each tap.
struct TileWords {
  const uint32_t* in;
  int64_t first, count;
  uint32_t* out;

  BITGRAD_HD void operator()(int64_t i) const { out[i] = in[first + i % count]; }
};

// sum += part.
struct AddToSums {
  const int32_t* part;
  int64_t* sum;

  BITGRAD_HD void operator()(int64_t i) const { sum[i] += part[i]; }
};

// gW from int8 codes: C[o,k] = float(sum[o,k] - codes[o] * zero[k]) * (scale[o] * x_scale[k]). Index: row * runs() +
// run of columns.
struct ScaleWindowSums {
  const int64_t *sum, *codes;  // codes: nullptr if there are no zero points
  const float *scale, *x_scale;
  const int32_t* zero;
  int64_t cols, step;  // step: entries of x_scale and zero between consecutive k, 0 or 1
  int64_t run;         // columns per call
  float* out;

  BITGRAD_HD int64_t runs() const { return (cols + run - 1) / run; }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t o = i / runs(), k0 = (i - o * runs()) * run, k1 = k0 + run < cols ? k0 + run : cols;
    const int64_t* const from = sum + o * cols;
    float* const to = out + o * cols;
    const float s = scale[o];
    if (codes == nullptr && (x_scale == nullptr || step == 0)) {
      const float product = x_scale == nullptr ? s : s * *x_scale;
      for (int64_t k = k0; k < k1; ++k) to[k] = static_cast<float>(from[k]) * product;
      return;
    }
    for (int64_t k = k0; k < k1; ++k) {
      const int64_t exact = codes == nullptr ? from[k] : from[k] - codes[o] * zero[k * step];
      to[k] = static_cast<float>(exact) * (x_scale == nullptr ? s : s * x_scale[k * step]);
    }
  }
};

// gx from int8 codes: C = float(sum) * (scale[image] * w_scale). Index: image * runs() + run of elements.
struct ScaleImages {
  const int32_t* sum;
  const float *scale, *w_scale;  // scale: one per `elements`; w_scale: a single one, nullptr means 1
  int64_t elements, run;         // run: elements per call
  float* out;

  BITGRAD_HD int64_t runs() const { return (elements + run - 1) / run; }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t image = i / runs(), first = (i - image * runs()) * run;
    const int64_t end = first + run < elements ? first + run : elements;
    const float s = w_scale == nullptr ? scale[image] : scale[image] * *w_scale;
    const int32_t* const from = sum + image * elements;
    float* const to = out + image * elements;
    for (int64_t k = first; k < end; ++k) to[k] = static_cast<float>(from[k]) * s;
  }
};

}  // namespace bitgrad::maps
