// Maps: int32 sums with a scale (docs/numerics.md section 4): values, biases, and requantized codes.
#pragma once

#include "kernels/map/numbers.h"
#include "ops/map/list.h"

namespace bitgrad::maps {
namespace q {

// Converts runs of 64 elements of the rows of x [rows, cols] to codes and a mask: whole words of both.
struct CodeRuns {
  const int32_t* x = nullptr;
  int64_t cols = 0;
  int bits = 8;
  void* codes = nullptr;
  int64_t stride = 0;        // in bytes
  uint64_t* mask = nullptr;  // rows of (cols + 63) / 64 words

  BITGRAD_HD int64_t per_row() const { return (cols + 63) / 64; }
  // number(x, row, column) before clamping to [lo, hi].
  template <typename T, typename Number>
  BITGRAD_HD void write(int64_t run, T lo, T hi, const Number& number) const {
    const int64_t r = run / per_row(), first = run % per_row() * 64, last = cols - first < 64 ? cols : first + 64;
    auto* out = reinterpret_cast<uint64_t*>(static_cast<char*>(codes) + r * stride) + first / 64 * bits;
    const uint64_t field = (uint64_t{1} << bits) - 1;
    uint64_t passes = 0, word = 0;
    int used = 0;
    for (int64_t c = first; c < last; ++c) {
      const T u = number(x[r * cols + c], r, c);
      const T clamped = u > lo ? (u < hi ? u : hi) : lo;
      const uint64_t raw = static_cast<uint64_t>(static_cast<int64_t>(clamped)) & field;
      passes |= static_cast<uint64_t>(u >= lo && u <= hi) << (c - first);
      word |= raw << used;
      used += bits;
      if (used < 64) continue;
      *out++ = word;
      used -= 64;
      word = used == 0 ? 0 : raw >> (bits - used);
    }
    if (used > 0) *out = word;
    mask[run] = passes;
  }
};

struct RequantizeNumber {
  const float* factor;
  int64_t row_step, col_step;
  const int32_t* zero;
  int64_t zero_step;
  BITGRAD_HD float operator()(int32_t sum, int64_t r, int64_t c) const {
    const float u = rintf(static_cast<float>(sum) * factor[r * row_step + c * col_step]);
    return zero == nullptr ? u : u + static_cast<float>(zero[r * zero_step]);
  }
};
struct ShiftNumber {
  int k;
  BITGRAD_HD int64_t operator()(int32_t sum, int64_t, int64_t) const {
    const int64_t wide = sum;
    return (wide + (int64_t{1} << (k - 1)) - 1 + ((wide >> k) & 1)) >> k;
  }
};

}  // namespace q

// u = rint(float(sum) * factor) + zero.
struct RequantizeRuns {
  q::CodeRuns runs;
  q::RequantizeNumber number;
  float lo, hi;
  BITGRAD_HD void operator()(int64_t run) const { runs.write(run, lo, hi, number); }
};
// u = sum / 2^k, rounded to nearest even.
struct ShiftRuns {
  q::CodeRuns runs;
  q::ShiftNumber number;
  int64_t lo, hi;
  BITGRAD_HD void operator()(int64_t run) const { runs.write(run, lo, hi, number); }
};

// factor[r, c] = min(s_in / s_out, largest fp32) for every pair of scales.
struct RequantizeFactors {
  ScaleMap in;
  const float* out_scale;  // nullptr means 1
  int64_t out_step;        // 1: one per row
  int64_t cols;
  float* factor;
  uint32_t* flags;  // set to kFlagNonFinite if s_in is not finite
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / cols, c = i % cols;
    const float s_in = in.scale == nullptr ? 1.0f : in.scale[q::index_of(in, r, c)];
    const float s_out = out_scale == nullptr ? 1.0f : out_scale[r * out_step];
    if (flags != nullptr && !q::finite(s_in)) or_flag(flags, kFlagNonFinite);
    factor[i] = q::smaller(s_in / s_out, 0x1.fffffep127f);
  }
};

// Flags scales that are not positive numbers.
struct FlagNotPositive {
  const float* scale;
  uint32_t* flags;
  BITGRAD_HD void operator()(int64_t j) const {
    if (!(q::finite(scale[j]) && scale[j] > 0)) or_flag(flags, kFlagNonFinite);
  }
};

// out = scale * 2^k
struct ShiftedScales {
  const float* scale;  // nullptr means 1
  float factor;
  q::BlockOut out;
  BITGRAD_HD void operator()(int64_t j) const { out.store(j, scale == nullptr ? factor : scale[j] * factor); }
};

// out = sx * sw; nullptr means 1.
struct ProductScales {
  const float *x, *w;
  int64_t x_step, w_step;
  float* out;
  BITGRAD_HD void operator()(int64_t j) const {
    out[j] = (x == nullptr ? 1.0f : x[j * x_step]) * (w == nullptr ? 1.0f : w[j * w_step]);
  }
};

// rint(bias / scale), each operation in fp32, clamped to int32. A bias of 0 gives 0 even if the scale underflowed to 0.
struct RoundedBias {
  const float *bias, *scale;
  int64_t scale_step;
  uint32_t* flags;  // set to kFlagNonFinite if the bias is not finite
  int32_t* out;
  BITGRAD_HD void operator()(int64_t j) const {
    const float b = bias[j];
    if (!q::finite(b)) or_flag(flags, kFlagNonFinite);
    const float rounded = b == 0 ? 0.0f : rintf(b / scale[j * scale_step]);
    out[j] = q::magnitude(rounded) < 0x1p31f ? static_cast<int32_t>(rounded) : (rounded < 0 ? INT32_MIN : INT32_MAX);
  }
};

// y += bias of the column, clamped to int32.
struct AddBias {
  q::Elements elements;
  const int32_t* bias;
  int32_t* y;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const int64_t sum = int64_t{y[e]} + bias[j];
    y[e] = static_cast<int32_t>(sum < INT32_MIN ? INT32_MIN : (sum > INT32_MAX ? INT32_MAX : sum));
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, elements.block(e)); }
};

// y = max(x, 0) for runs of 64 elements, and a mask of x > 0.
struct IntegerReluRuns {
  int64_t cols;
  const int32_t* x;
  int32_t* y;
  uint64_t* mask;
  BITGRAD_HD void operator()(int64_t run) const {
    const int64_t per_row = (cols + 63) / 64, first = run % per_row * 64, at = run / per_row * cols + first;
    const int64_t n = cols - first < 64 ? cols - first : 64;
    uint64_t bits = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t v = x[at + i];
      y[at + i] = v > 0 ? v : 0;
      bits |= static_cast<uint64_t>(v > 0) << i;
    }
    mask[run] = bits;
  }
};

// y = float(x) * s
struct IntegerValues {
  q::Elements elements;
  const int32_t* x;
  float* y;
  BITGRAD_HD void at(int64_t e, int64_t j) const {
    const float v = static_cast<float>(x[e]);
    y[e] = elements.map.scale == nullptr ? v : v * elements.map.scale[j];
  }
  BITGRAD_HD void operator()(int64_t e) const { at(e, elements.block(e)); }
};

}  // namespace bitgrad::maps
