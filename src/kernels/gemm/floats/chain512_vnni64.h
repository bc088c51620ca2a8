// Float products in order chain512 (chain512.h) of few rows of A with B as small integers in layout vnni64: codes
// become values in registers, so that one row costs what reading B costs. A may have any dtype and scales; its rows are
// expanded to fp32 once. B's values are s * q, s * (q - z) or s * q + m, each operation rounded once, with any scales
// per column, and along k in whole lines of the layout.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"
#include "kernels/gemm/common/panel_params.h"

namespace bitgrad::kernels::gemm_detail {

// Rows of A times the panels of one group of panels, over all of k.
struct ChainPanelTile {
  const float* a;  // [row][k], rows a_step apart
  int64_t a_step, k;
  const uint8_t* b;                    // [step][panel][16 columns][4]
  int panels;                          // 1 .. kVnniPanels
  int64_t steps;                       // lines of a panel per group of k
  float factor, lowest;                // q = factor u + lowest
  bool at_most_one;                    // |q| <= 1
  const float *scale, *zero, *offset;  // [group][kPanelColumns]; zero and offset may be null
  const uint16_t* halves;              // fp16 in place of scale, or null; only for kernels with PanelLoops::halves
  float* c;                            // [row][kPanelColumns], written
};

struct ChainPanelKernel {
  int rows;  // of the largest tile, at most 4
  void (*tile)(int rows, int bits, const ChainPanelTile& tile);
  PanelLoops panel;
  double open_ns, mac_ns;  // per code that becomes a value, and per multiply-add
};

bool chain512_vnni64_supports(const GemmArgs& args);
double chain512_vnni64_cost(const GemmArgs& args, const ChainPanelKernel& kernel);
void chain512_vnni64_gemm(const GemmArgs& args, const ChainPanelKernel& kernel);

}  // namespace bitgrad::kernels::gemm_detail
