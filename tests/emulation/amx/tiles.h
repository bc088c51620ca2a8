// The tile instructions in portable code, with the semantics of palette 1 (Intel SDM vol. 1 chapter 18; vol. 2
// LDTILECFG, TILELOADD, TILESTORED, TDPB*D, TDPBF16PS): eight tiles per thread of at most 16 rows of 64 bytes. A load
// clears what is beyond the configured rows and bytes. int8 products are added modulo 2^32. bf16 products form one fma
// chain of the even and one of the odd elements of a row, each starting at +0; then sums = sums + (even + odd). Each
// operation rounds to nearest even, with subnormal inputs treated as zero and subnormal results flushed. What raises
// #UD on hardware is an Error here.
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

// Work of this thread since the last configure, for tests.
struct Account {
  bool configured;
  int64_t products;                // number of multiply calls
  int64_t most_products_unstored;  // maximum number of them between two stores
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
