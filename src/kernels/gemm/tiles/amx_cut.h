// How a product is cut for the tile unit: by shape and dtypes alone.
//
// B's columns are processed in chunks (all of them, or as many as fit when canonical codes are packed), A's rows in
// blocks whose tiles fit in L2 beside the rest. If all of k does not fit for 32 rows, it is split into passes, and the
// sums wait in memory.
#pragma once

#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/tiles/amx.h"
#include "kernels/gemm/tiles/amx_operand.h"

namespace bitgrad::kernels::gemm_detail {

// What A is converted to.
enum class TileNumbers { kCodes, kHalves, kDigits };

struct TileCut {
  TileFormat format;
  TileProduct product;
  int parts;            // digits per value
  bool packs;           // whether B is packed during the call
  int64_t steps, pass;  // of k in all, and per pass
  int64_t rows;         // rows of A at a time, whole blocks
  int64_t columns;      // columns of B at a time

  TileCut(const GemmArgs& args, TileNumbers numbers, int parts);
  int64_t passes() const { return ceil_div(steps, pass); }
  int64_t sums_of_pair() const { return rows / kBlockSide * parts * kSumBytes; }
  int64_t bytes_of_a() const { return rows / kBlockSide * parts * pass * kStepBytes; }
  int64_t bytes_of_b(int64_t k) const {
    return packs ? ceil_div(columns, kTileRows) * packed_panel_bytes(format, k) : 0;
  }
  int64_t bytes_of_sums() const { return passes() > 1 ? ceil_div(columns, kBlockSide) * sums_of_pair() : 0; }
};

// Valid for the lifetime of the program.
const uint8_t* step_order_of(TileFormat format);

}  // namespace bitgrad::kernels::gemm_detail
