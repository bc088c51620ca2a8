// Convolutions of signs {-1, +1} without gathered rows, in vectors of 16 lanes.
//   Forward, signs times signs: a line of taps of a window is one run of bits in the image's plane. Its words are
//   compared with those of 8 outputs at a time, and the differences are counted; taps outside are masked off. Exact.
//   gx, fp32 times signs: for each window and each 4 of its channels, a table of their 16 signed sums. A pixel adds
//   entries of the tables of its windows. The lanes are 16 channels of x, which look up the signs of their weights.
//   gw, fp32 times signs: tables of one window in 4 images, for one output channel. The lanes look up the signs of 16
//   channels of x at its pixels in those images. Sums are taken over a block of images, then over the blocks in
//   ascending order.
// With int8 gy the sums are integers below 2^24, which floats add exactly. Float sums have an order of their own
// (SumOrder::kFree), which depends on the shape alone. Windows outside are +0 or omitted, so Inf and NaN affect only
// the products they take part in.
#pragma once

#include <cstdint>

#include "kernels/conv.h"

namespace bitgrad::kernels::conv {

inline constexpr int64_t kLanes = 16, kTableFloats = 16, kTableCodes = 4;

// out[k] = sum over i < 4 of (bit c of masks[k][i]) << i in lane c.
struct NibbleCall {
  const uint16_t* masks;  // [count][4]
  int64_t count;
  int32_t* out;  // [count][16]
};

// A row of a forward convolution, for 16 outputs.
struct SignRow {
  const uint8_t* const* lines;     // per line (`taps` of them): the bits of the first window
  const uint64_t* const* weights;  // per line: [words][16]
  int64_t taps, words;
  int64_t pixel;          // bytes between windows
  const uint64_t* masks;  // [window][words]
  const int32_t* valid;   // number of products per window
  int64_t windows, outputs;
  void* c;
  int64_t ldc;
  bool integers;              // C is int32
  const float *scale, *bias;  // [16]; bias may be null
};

// Builds the tables of `pixels` pixels with at most 16 channels.
struct TableLine {
  const void* x;  // fp32 or int8
  bool bytes;
  int64_t step, pixels, channels;  // elements
  const float* fold;               // [channels], or null
  bool bf16;
  float* tables;  // [pixel][4][16]
};

// A row of gx with at most 16 channels.
struct TableRow {
  float* out;
  int64_t step, pixels, channels;
  bool resume;             // start from the contents of out
  float scale;             // applied to the sums
  const int32_t* index;    // [tap][4][16]
  const int64_t* offsets;  // per tap: floats from `tables` to the tables of the first pixel
  int64_t taps;
  const float* tables;
};

// gy of 4 images by channels: out[(j * plane + 16 * m) + 4 * q + i] = x[i][m * step + 4 * q + j] * *fold, for at most
// 16 channels; zeros for missing channels and images.
struct MixCall {
  const void* x[4];  // fp32 or int8; nullptr: no image
  bool bytes;
  int64_t step, windows, channels;
  const float* fold;  // may be null
  bool bf16;          // round to bf16
  float* out;
  int64_t plane;  // floats
};

// Sums of gw for two outputs over rows of windows.
struct WeightRun {
  int64_t lines, kw;     // taps
  const int32_t* index;  // [pixel][16], at the first window's first tap
  int64_t line, row;     // between tap lines, and between rows of windows
  int64_t pixel;         // between windows
  int64_t rows, windows;
  const float* gy;            // [row][window][16]: 4 images of the first output, then of the second
  const uint8_t* valid;       // [window]: bit kx is set if the tap counts
  float *sums, *second_sums;  // [line][kw][16]
};

struct SignIsa {
  void (*nibbles)(const NibbleCall& call);
  void (*sign_row)(const SignRow& row);
  void (*tables)(const TableLine& line);
  void (*table_row)(const TableRow& row);
  bool (*has_weights)(int64_t lines, int64_t kw);
  void (*weights)(const WeightRun& run);
  void (*mix)(const MixCall& call);
};
// Requires isa::kAvx512; sign_row also requires isa::kAvx512Popcnt.
const SignIsa& signs_machine();

// conv_direct and conv_weights_direct for signs. pays: they are supported, and expected to be faster than gathered
// windows.
bool conv_signs(const DirectConvArgs& args, const SignIsa& isa);
bool conv_signs_pays(const DirectConvArgs& args, const SignIsa& isa);
bool conv_gradient_signs(const DirectConvArgs& args, const SignIsa& isa);
bool conv_gradient_signs_pays(const DirectConvArgs& args, const SignIsa& isa);
bool conv_weights_signs(const DirectWeightsArgs& args, const SignIsa& isa);
bool conv_weights_signs_pays(const DirectWeightsArgs& args, const SignIsa& isa);

}  // namespace bitgrad::kernels::conv
