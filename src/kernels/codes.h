// Family codes: loops of networks of integers, on int8 codes and int32 sums (docs/numerics.md section 4, "The integer
// scheme"). All instruction sets give the same codes.
#pragma once

#include <cstdint>

namespace bitgrad::kernels::codes {

// OutputRounding of quant/fixed_point.h, which defines the rules: the same names in the same order.
enum class Rule : uint8_t { kDouble, kSingle, kFloat, kRuy };
// m * 2^(e - 31); m is in [2^30, 2^31), or 0; -31 <= e <= 30.
struct Multiplier {
  int32_t m = 0, e = 0;
};

// Channels are counted in blocks of this many; arrays per channel have whole blocks, filled with 0.
inline constexpr int64_t kBlock = 16;

// Sums to codes: clamp(r + zero, lo, hi), r = (sum + bias[j]) * m[j] * 2^(e[j] - 31) by the rule, or of kFloat
// rint(fp32(sum + bias[j]) * factor[j]). lo >= -128, hi <= 127, -128 <= zero <= 127.
struct Stage {
  Rule rule = Rule::kDouble;
  const int32_t* bias = nullptr;  // nullptr: 0
  const int32_t *m = nullptr, *e = nullptr;
  const float* factor = nullptr;
  int32_t zero = 0, lo = -128, hi = 127;
  bool left = false;  // some e is positive
};

// A sum of two values of codes (inference::IntegerAdd).
struct Sum {
  Rule rule = Rule::kDouble;  // of kRuy: kDouble
  int32_t zero_in[2] = {0, 0};
  Multiplier in[2] = {}, out = {};
  int32_t factor[2] = {0, 0}, shift = 0;  // kFloat
  int32_t zero = 0, lo = -128, hi = 127;
};

// rows x channels of sums to codes; steps are elements between rows.
struct RequantizeCall {
  Stage stage = {};
  int64_t rows = 0, channels = 0;
  const int32_t* sums = nullptr;
  int64_t sums_step = 0;
  int8_t* y = nullptr;
  int64_t y_step = 0;
};
void requantize_rows(const RequantizeCall& call);
// y[i] of a[i] and b[i].
struct AddCall {
  Sum sum = {};
  int64_t n = 0;
  const int8_t *a = nullptr, *b = nullptr;
  int8_t* y = nullptr;
};
void add_codes(const AddCall& call);
// sums[i] += x[i].
void add_to_sums(int64_t n, const int8_t* x, int32_t* sums);
// y[i] = x[i] + 128.
void raise_codes(int64_t n, const int8_t* x, uint8_t* y);

// A convolution of an image of codes plus 128 (pixels outside are in it), or rows of them, straight to codes:
//   sum[line, pixel, o] = sum over g, i < 4 of w[o / 16][g][o % 16][i] * x[line * x_line + pixel * x_pixel +
//   offset[g] + i], to y[line * y_line + pixel * y_pixel + o] by the stage, without left.
struct ProductCall {
  Stage stage = {};
  const uint8_t* x = nullptr;
  int64_t x_line = 0, x_pixel = 0;
  int64_t lines = 0, pixels = 0, channels = 0;
  const int32_t* offset = nullptr;  // [groups]
  int64_t groups = 0;
  const int8_t* w = nullptr;  // 64-byte aligned
  int8_t* y = nullptr;
  int64_t y_line = 0, y_pixel = 0;
};
// Whether the instructions granted now have it (AVX-512 VNNI).
bool has_product();
void product_codes(const ProductCall& call);

}  // namespace bitgrad::kernels::codes
