// The tile instructions in portable code, with the semantics of palette 1 (Intel SDM vol. 1 chapter 18; vol. 2
// LDTILECFG, TILELOADD, TILESTORED, TDPB*D, TDPBF16PS): eight tiles of at most 16 rows of 64 bytes a thread; a load
// clears what lies beyond the configured rows and bytes; int8 products add modulo 2^32; bf16 products keep one fma
// chain of the even and one of the odd elements of a row, from +0, then sums = sums + (even + odd), each operation
// rounded to nearest even, subnormal inputs taken as zero and subnormal results flushed. What is #UD on the machine is
// an Error here.
#pragma once

#include <cstdint>

#include "kernels/gemm/tiles/amx_tiles.h"

namespace bitgrad::kernels::gemm_detail {

namespace emulated {
void configure(const TileConfig& config);
void release();
void zero(int tile);
void load(int tile, const void* from, int64_t stride);
void store(int tile, void* to, int64_t stride);
void multiply(TileProduct product, int sums, int a, int b);

// What this thread did since the last configure, for tests.
struct Account {
  bool configured;
  int64_t products;                // multiply calls
  int64_t most_products_unstored;  // the most of them between two stores
};
Account account();
}  // namespace emulated

struct EmulatedTiles {
  static void configure(const TileConfig& config) { emulated::configure(config); }
  static void release() { emulated::release(); }
  template <int kTile>
  static void zero() {
    emulated::zero(kTile);
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    emulated::load(kTile, from, stride);
  }
  template <int kTile>
  static void load_streamed(const void* from, int64_t stride) {
    emulated::load(kTile, from, stride);
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    emulated::store(kTile, to, stride);
  }
  template <TileProduct kProduct, int kSums, int kA, int kB>
  static void multiply() {
    emulated::multiply(kProduct, kSums, kA, kB);
  }
};

}  // namespace bitgrad::kernels::gemm_detail
