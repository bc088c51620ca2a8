// Convolutions on the tile unit, without gathered rows (the unit is described in kernels/gemm/tiles/amx.h).
//
// An image and its border are stored in one plane of bytes or bf16, pixel after pixel. The windows of a line are then
// overlapping rows of A: with stride s, row x of tap line ky begins at pixel (s y + ky, s x) and is kw pixels long. The
// unit can load rows at any distance, so a block of 32 consecutive positions of the plane times 32 columns of B is an
// ordinary product. Positions that are not windows (at the end of a line) are computed and discarded.
//   Forward: A = the plane, B = weights.
//   gx: A = the plane of gy, B = weights with their taps reversed. The pixels of one residue modulo s in both
//   directions read the taps of one residue, which gives s * s products.
//   gw: A = the image by channels, [pixel modulo s][c][pixel / s], starting at the pixel of the tap; B = gy by
//   positions, [position][o], in the image's plane, with zeros where there is no window. K runs over the positions.
// Codes multiply as bytes, exactly. Floats are split into three bf16 parts, which hold all 24 bits, or rounded to one.
// The products of the parts with codes, which bf16 represents exactly, are added in fp32 in the unit's order
// (SumOrder::kFree).
#pragma once

#include <cstdint>

#include "kernels/conv.h"
#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::kernels::conv {

using gemm_detail::TileProduct;

inline constexpr int kFloatParts = 3;

// Products of a plane with packed weights.
struct PlaneTask {
  const uint8_t* plane;  // the first of `parts`, which are part_bytes apart
  int64_t part_bytes;
  int parts;
  int64_t pixel, line;   // bytes between rows of A, and between tap lines
  int64_t lines, steps;  // tap lines, and steps of 64 bytes in each
  int64_t rows;          // positions
  const uint8_t* b;      // [pair][line][step][2][16][64]
  int64_t pairs;         // pairs of panels of 16 columns
  bool odd;              // the last pair has one panel
  // Receives the sums of positions [row, row + 32) for a pair: [2][2][16][16], tiles of rows, then of columns.
  void (*finish)(const void* context, int64_t row, int64_t pair, const uint8_t* sums);
  const void* context;
};

// Products of an image by channels with gy by positions.
struct PositionTask {
  const uint8_t* const* a;  // `tiles` first rows of 16 rows of A each
  int64_t tiles;
  int64_t a_pitch, a_image;  // bytes between rows, and between images
  int64_t images, steps;
  const uint8_t* b;  // [image][part][panel][step][16][64]
  int64_t b_image, b_part, b_panel;
  int parts;
  int64_t panels;
  uint8_t* sums;  // [tile][panel][16][16], fp32 or int32
  bool resume;    // start from these sums
};

// Where the results of positions go, and how they are finished.
struct RowFinish {
  const int32_t* place;  // row of C per position; negative: none
  void* c;               // for this image
  int64_t ldc, columns;
  bool floats;    // sums are fp32, not int32
  bool integers;  // C is int32
  float image_scale;
  const float *scale, *bias;  // per column, or null
  int64_t scale_step;         // 0: one for all columns
};

struct DirectIsa {
  void (*planes)(TileProduct product, const PlaneTask& task);
  void (*positions)(TileProduct product, const PositionTask& task);
  void (*finish)(const RowFinish& out, int64_t row, int64_t pair, const uint8_t* sums);
  // out[p * part + j]: bf16 parts of x[j] * fold[j] (fold may be null). A single part is rounded to nearest even.
  void (*split)(int64_t n, const float* x, const float* fold, int parts, uint16_t* out, int64_t part);
  // The same for `pairs` pairs of rows: pair i consists of rows x0 + i * step and x1 + i * step of n columns. out[i *
  // 32 + p * part + j / 16 * panel + 2 * (j % 16)] is for x0[j], and the next element for x1[j].
  void (*split_pairs)(int64_t n, int64_t pairs, const float* x0, const float* x1, int64_t step, const float* fold,
                      int parts, uint16_t* out, int64_t part, int64_t panel);
  // out[j / 16 * panel + 4 * (j % 16) + i] = rows[i][j], for four rows.
  void (*interleave)(int64_t n, const int8_t* const* rows, uint8_t* out, int64_t panel);
  void (*to_bf16)(int64_t n, const uint8_t* x, bool is_unsigned, uint16_t* out);
  // out[m * 64 + k] = in[k * stride + m]; reads 64 x 64 bytes and writes the first `lines` lines of out.
  void (*transpose_bytes)(const uint8_t* in, int64_t stride, int64_t lines, uint8_t* out);
};

const DirectIsa& direct_machine();

// conv_direct and conv_weights_direct on the unit of `isa`. pays: they are supported, and expected to be faster than
// gathered windows.
bool conv_amx(const DirectConvArgs& args, const DirectIsa& isa);
bool conv_amx_pays(const DirectConvArgs& args, const DirectIsa& isa);
bool conv_weights_amx(const DirectWeightsArgs& args, const DirectIsa& isa);
bool conv_weights_amx_pays(const DirectWeightsArgs& args, const DirectIsa& isa);

}  // namespace bitgrad::kernels::conv
