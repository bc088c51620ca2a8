// Convolutions on the tile unit, without gathered rows (kernels/gemm/tiles/amx.h says what the unit is).
//
// An image lies with its border in one plane of bytes, or of bf16, pixel after pixel. Then the windows of a line are
// rows of A that overlap: with stride s, row x of tap line ky begins at pixel (s y + ky, s x) and is kw pixels long.
// The unit loads rows at any distance, so a block of 32 neighbouring positions of the plane times 32 columns of B is a
// product as any other; positions that are no windows (those at the end of a line) are computed and left out.
//   Forward: A = the plane, B = weights.
//   gx: A = the plane of gy, B = weights with their taps turned round. The pixels of one residue modulo s in both
//   directions read the taps of one residue: s * s products.
//   gw: A = the image by channels, [pixel modulo s][c][pixel / s], from the pixel of the tap on; B = gy by positions,
//   [position][o], in the image's plane and zero where there is no window. K are the positions.
// Codes multiply as bytes, exactly. Floats are split into three bf16 parts, which hold all 24 bits, or rounded to one;
// the parts times codes, which bf16 holds, are added in fp32 in the unit's order (SumOrder::kFree).
#pragma once

#include <cstdint>

#include "bitgrad/kernels/windows.h"
#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::kernels::windows {

using gemm_detail::TileProduct;

inline constexpr int kFloatParts = 3;

// Products of a plane with packed weights.
struct PlaneTask {
  const uint8_t* plane;  // the first of `parts`, part_bytes apart
  int64_t part_bytes;
  int parts;
  int64_t pixel, line;   // bytes from row to row of A, and from a tap line to the next
  int64_t lines, steps;  // tap lines, and steps of 64 bytes in each
  int64_t rows;          // positions
  const uint8_t* b;      // [pair][line][step][2][16][64]
  int64_t pairs;         // of panels of 16 columns
  bool odd;              // the last pair has one panel
  // Sums of positions [row, row + 32) and of a pair: [2][2][16][16], tiles of rows and then of columns.
  void (*finish)(const void* context, int64_t row, int64_t pair, const uint8_t* sums);
  const void* context;
};

// Products of an image by channels with gy by positions.
struct PositionTask {
  const uint8_t* const* a;  // `tiles` first rows of 16 rows of A each
  int64_t tiles;
  int64_t a_pitch, a_image;  // bytes from row to row, from image to image
  int64_t images, steps;
  const uint8_t* b;  // [image][part][panel][step][16][64]
  int64_t b_image, b_part, b_panel;
  int parts;
  int64_t panels;
  uint8_t* sums;  // [tile][panel][16][16], fp32 or int32
  bool resume;    // begin from these sums
};

// Where positions go, and how.
struct RowFinish {
  const int32_t* place;  // row of C of each position; below 0: none
  void* c;               // of this image
  int64_t ldc, columns;
  bool floats;    // sums are fp32, not int32
  bool integers;  // C is int32
  float image_scale;
  const float *scale, *bias;  // of a column, or nullptr
  int64_t scale_step;         // 0: one for all columns
};

struct DirectIsa {
  void (*planes)(TileProduct product, const PlaneTask& task);
  void (*positions)(TileProduct product, const PositionTask& task);
  void (*finish)(const RowFinish& out, int64_t row, int64_t pair, const uint8_t* sums);
  // out[p * part + j]: bf16 parts of x[j] * fold[j] (fold may be nullptr). One part rounds to nearest even.
  void (*split)(int64_t n, const float* x, const float* fold, int parts, uint16_t* out, int64_t part);
  // The same of `pairs` pairs of rows: pair i has the rows x0 + i * step and x1 + i * step of n columns.
  // out[i * 32 + p * part + j / 16 * panel + 2 * (j % 16)] of x0[j], and beside it of x1[j].
  void (*split_pairs)(int64_t n, int64_t pairs, const float* x0, const float* x1, int64_t step, const float* fold,
                      int parts, uint16_t* out, int64_t part, int64_t panel);
  // out[j / 16 * panel + 4 * (j % 16) + i] = rows[i][j] of four rows.
  void (*interleave)(int64_t n, const int8_t* const* rows, uint8_t* out, int64_t panel);
  void (*to_bf16)(int64_t n, const uint8_t* x, bool is_unsigned, uint16_t* out);
  // out[m * 64 + k] = in[k * stride + m], 64 x 64 bytes are read and the first `lines` lines of out written.
  void (*transpose_bytes)(const uint8_t* in, int64_t stride, int64_t lines, uint8_t* out);
};

const DirectIsa& direct_machine();

// conv_direct and conv_weights_direct with the unit of `isa`. force: also where it does not pay.
bool conv_direct(const DirectConvArgs& args, const DirectIsa& isa, bool force);
bool conv_weights_direct(const DirectWeightsArgs& args, const DirectIsa& isa, bool force);

}  // namespace bitgrad::kernels::windows
