// Convolutions of few channels (the first ones of a net) without gathered rows, in vectors of 16 outputs. An image lies
// with its border in a plane of floats, where the taps of a line of a window are neighbours. Forward: chains of fma
// over ascending taps from +0. gw: chains over ascending windows, one for each block of images, which are added in
// ascending order. Codes of 8 bits and weights of few bits are exact, as all their sums lie below 2^24.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/windows.h"

namespace bitgrad::kernels::windows {

inline constexpr int64_t kFewLanes = 16;

// A row of windows for at most 16 outputs.
struct FewRow {
  const float* const* lines;  // of `taps` lines: the first window
  int64_t taps, run;          // values of a line of taps
  const float* weights;       // [taps][run][16]
  int64_t pixel;              // floats from window to window
  int64_t windows, outputs;
  void* c;
  int64_t ldc;
  bool integers;              // C is int32
  const float *scale, *bias;  // [16]; bias may be nullptr
};

// Sums of gw of at most 16 outputs over rows of windows.
struct FewWeights {
  int64_t lines, run;        // of taps, and values of each
  const float* x;            // of the first window
  int64_t line, row, pixel;  // floats to the next line of taps, row of windows, window
  int64_t rows, windows;
  const float* gy;
  int64_t gy_row, gy_window, outputs;
  const float* fold;  // or nullptr
  bool bf16;          // gy is rounded, after folding
  float* sums;        // [line][..][16]
  int64_t sums_line;  // floats
};

struct FewIsa {
  void (*row)(const FewRow& row);
  bool (*has_weights)(int64_t lines, int64_t run);
  void (*weights)(const FewWeights& call);
};
// Needs isa::kAvx512.
const FewIsa& few_machine();

// conv_direct and conv_weights_direct of few channels. force: of any number.
bool conv_few(const DirectConvArgs& args, const FewIsa& isa, bool force);
bool conv_weights_few(const DirectWeightsArgs& args, const FewIsa& isa, bool force);

}  // namespace bitgrad::kernels::windows
