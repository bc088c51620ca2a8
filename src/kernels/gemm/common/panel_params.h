// Scales, zero points and offsets of 64 columns of B (a group of panels of layout vnni64) in the order in which tiles
// read them: for each group of k, one number per column.
#pragma once

#include <cstdint>

#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// out[k * width + i] = rows[i][k] for a fixed number of rows i and k < kc.
using Transpose = void (*)(const float* const* rows, int64_t kc, int64_t width, float* out);
// For 16 rows; needs isa::kAvx512 (floats/chain512_avx512.cpp).
void transpose16_avx512(const float* const* rows, int64_t kc, int64_t width, float* out);
// fp16 to fp32; needs isa::kAvx2 (panel_params_avx2.cpp).
void widen_halves_avx2(const uint16_t* in, int64_t count, float* out);

// What an instruction set has for scales; null: by plain loops.
struct PanelLoops {
  Transpose transpose16 = nullptr;
  void (*widen)(const uint16_t* in, int64_t count, float* out) = nullptr;
  bool halves = false;  // its tiles read fp16
};

// [group][kPanelColumns] scales of 64 columns; halves only where PanelLoops::halves.
struct PanelScales {
  const float* floats = nullptr;
  const uint16_t* halves = nullptr;  // in place of floats
};

inline constexpr int64_t kPanelColumns = kVnniPanels * kPanelRows;

// Groups of B along k; 1 if its parameters do not change along k.
int64_t groups_along_k(const GemmArgs& args);

// out[g * kPanelColumns + j] = values[parameter of column j0 + j in group g] for columns [j0, j0 + columns) and all
// groups. Lanes beyond `columns` repeat the first column. B is stored [free, k].
void put_panel_params(const GemmArgs& args, int64_t j0, int64_t columns, const float* values, float* out);
void put_panel_params(const GemmArgs& args, int64_t j0, int64_t columns, const int32_t* values, int32_t* out);
// The scales, 1 if there are none: where args.b.panel_scales has them, or put into `memory`, as above.
PanelScales panel_scales(const GemmArgs& args, int64_t j0, int64_t columns, float* memory, const PanelLoops& loops);

}  // namespace bitgrad::kernels::gemm_detail
