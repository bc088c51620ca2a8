// Convolutions with few channels (the first ones of a network) without gathered rows, in vectors of 16 outputs. An
// image and its border are stored in a plane of floats, in which the taps of a line of a window are contiguous.
// Forward: fma chains over ascending taps from +0. gw: chains over ascending windows, one per block of images; the
// blocks are added in ascending order. Codes of 8 bits with weights of few bits are exact, because all sums are below
// 2^24.
#pragma once

#include <cstdint>

#include "kernels/conv.h"

namespace bitgrad::kernels::conv {

inline constexpr int64_t kFewLanes = 16;

// A row of windows, for at most 16 outputs.
struct FewRow {
  const float* const* lines;  // per line of taps (`taps` of them): the first window
  int64_t taps, run;          // values per line of taps
  const float* weights;       // [taps][run][16]
  int64_t pixel;              // floats between windows
  int64_t windows, outputs;
  void* c;
  int64_t ldc;
  bool integers;              // C is int32
  const float *scale, *bias;  // [16]; bias may be null
};

// Sums of gw for at most 16 outputs over rows of windows.
struct FewWeights {
  int64_t lines, run;        // lines of taps, and values of each
  const float* x;            // at the first window
  int64_t line, row, pixel;  // floats between lines of taps, rows of windows, windows
  int64_t rows, windows;
  const float* gy;
  int64_t gy_row, gy_window, outputs;
  const float* fold;  // may be null
  bool bf16;          // round gy to bf16, after folding
  float* sums;        // [line][..][16]
  int64_t sums_line;  // floats
};

struct FewIsa {
  void (*row)(const FewRow& row);
  bool (*has_weights)(int64_t lines, int64_t run);
  void (*weights)(const FewWeights& call);
};
// Requires isa::kAvx512.
const FewIsa& few_machine();

// conv_direct and conv_weights_direct for few channels. pays: they are supported and few.
bool conv_few(const DirectConvArgs& args, const FewIsa& isa);
bool conv_few_pays(const DirectConvArgs& args, const FewIsa& isa);
bool conv_weights_few(const DirectWeightsArgs& args, const FewIsa& isa);
bool conv_weights_few_pays(const DirectWeightsArgs& args, const FewIsa& isa);

}  // namespace bitgrad::kernels::conv
