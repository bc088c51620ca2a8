// Convolutions of signs {-1, +1} without gathered rows, in vectors of 16 lanes.
//   Forward, signs times signs: a line of taps of a window is one run of bits in the plane of the image. Words of it
//   are compared with those of 8 outputs at a time and counted; taps outside are masked out. Exact. gx, fp32 times
//   signs: for each window and each 4 of its channels, the table of their 16 sums with signs. A pixel adds up entries
//   of the tables of its windows: the lanes are 16 channels of x, which look up the signs of their weights. gw, fp32
//   times signs: tables of 4 neighbouring windows of one output channel; the lanes look up the signs of 16 channels of
//   x at those windows' pixels. Sums of a block of images, then of the blocks in ascending order.
// int8 gy gives integers below 2^24, which floats add exactly. Sums of floats are in an order of their own
// (SumOrder::kFree), which depends on the shape alone. Windows that are outside are +0 or left out, so Inf and NaN
// reach what they are multiplied with and nothing else.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/windows.h"

namespace bitgrad::kernels::windows {

inline constexpr int64_t kLanes = 16, kTableFloats = 16, kTableCodes = 4;

// out[k] = sum over i < 4 of (bit c of masks[k][i]) << i in lane c.
struct NibbleCall {
  const uint16_t* masks;  // [count][4]
  int64_t count;
  int32_t* out;  // [count][16]
};

// A row of a forward convolution for 16 outputs.
struct SignRow {
  const uint8_t* const* lines;     // of `taps` lines: the bits of the first window
  const uint64_t* const* weights;  // of each line: [words][16]
  int64_t taps, words;
  int64_t pixel;          // bytes from window to window
  const uint64_t* masks;  // [window][words]
  const int32_t* valid;   // products of each window
  int64_t windows, outputs;
  void* c;
  int64_t ldc;
  bool integers;              // C is int32
  const float *scale, *bias;  // [16]; bias may be nullptr
};

// The tables of `pixels` pixels of at most 16 channels.
struct TableLine {
  const void* x;  // fp32, or int8
  bool bytes;
  int64_t step, pixels, channels;  // elements
  const float* fold;               // [channels], or nullptr
  bool bf16;
  float* tables;  // [pixel][4][16]
};

// A row of gx of at most 16 channels.
struct TableRow {
  float* out;
  int64_t step, pixels, channels;
  bool resume;             // begin from what out holds
  float scale;             // of the sums
  const int32_t* index;    // [tap][4][16]
  const int64_t* offsets;  // of each tap: floats from `tables` to the tables of the first pixel
  int64_t taps;
  const float* tables;
};

// gy of 4 images by channels: out[(j * plane + 16 * m) + 4 * q + i] = x[i][m * step + 4 * q + j] * *fold, at most 16
// channels, zeros for those and for images that are not there.
struct MixCall {
  const void* x[4];  // fp32, or int8; nullptr: none
  bool bytes;
  int64_t step, windows, channels;
  const float* fold;  // or nullptr
  bool bf16;          // rounded
  float* out;
  int64_t plane;  // floats
};

// Sums of gw of two outputs over rows of windows.
struct WeightRun {
  int64_t lines, kw;     // taps
  const int32_t* index;  // [pixel][16] of the first window's first tap
  int64_t line, row;     // from a tap line and from a row of windows to the next
  int64_t pixel;         // from window to window
  int64_t rows, windows;
  const float* gy;            // [row][window][16]: 4 images of the one output, then of the other one
  const uint8_t* valid;       // [window]: bit kx: the tap counts
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
// Needs isa::kAvx512, sign_row isa::kAvx512Popcnt too.
const SignIsa& signs_machine();

// conv_direct and conv_weights_direct for signs. force: also where it does not pay.
bool conv_signs(const DirectConvArgs& args, const SignIsa& isa, bool force);
bool conv_gradient_signs(const DirectConvArgs& args, const SignIsa& isa, bool force);
bool conv_weights_signs(const DirectWeightsArgs& args, const SignIsa& isa, bool force);

}  // namespace bitgrad::kernels::windows
