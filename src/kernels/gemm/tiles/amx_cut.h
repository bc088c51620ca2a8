// How a product is cut for the tile unit: by its shape and dtypes alone.
//
// B's columns come in chunks (all of them, or as many as packing canonical codes may keep), A's rows in blocks whose
// tiles fit into L2 beside the rest. Where all of k does not fit for 32 rows, it comes in passes and the sums wait in
// memory.
#pragma once

#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/tiles/amx.h"
#include "kernels/gemm/tiles/amx_operand.h"

namespace bitgrad::kernels::gemm_detail {

// What A becomes.
enum class TileNumbers { kCodes, kHalves, kDigits };

struct TileCut {
  TileFormat format;
  TileProduct product;
  int parts;            // digits
  bool packs;           // B in the call
  int64_t steps, pass;  // of k, and of one pass
  int64_t rows;         // of A at a time, whole blocks
  int64_t columns;      // of B at a time

  TileCut(const GemmArgs& args, TileNumbers numbers, int parts);
  int64_t passes() const { return ceil_div(steps, pass); }
  int64_t sums_of_pair() const { return rows / kBlockSide * parts * kSumBytes; }
  int64_t bytes_of_a() const { return rows / kBlockSide * parts * pass * kStepBytes; }
  int64_t bytes_of_b(int64_t k) const {
    return packs ? ceil_div(columns, kTileRows) * packed_panel_bytes(format, k) : 0;
  }
  int64_t bytes_of_sums() const { return passes() > 1 ? ceil_div(columns, kBlockSide) * sums_of_pair() : 0; }
};

// Stays valid for ever.
const uint8_t* step_order_of(TileFormat format);

}  // namespace bitgrad::kernels::gemm_detail
