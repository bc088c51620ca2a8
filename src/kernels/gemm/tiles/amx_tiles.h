// The tile instructions behind one small interface, which the loop (amx_loop.h) takes as a template parameter.
// MachineTiles uses the instructions; EmulatedTiles (tests/emulation/amx/tiles.h) does the same in portable code.
//
// The asm clobbers "memory". g++ 12's own tile intrinsics do not, so stores to a buffer may be moved after the load of
// a tile from it. The assembler needs no option for these mnemonics, and the compiler never uses tiles itself.
#pragma once

#include <cstdint>

#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::kernels::gemm_detail {

// Palette 1 in the format of LDTILECFG (SDM vol. 1, 18.3).
struct alignas(64) TileConfig {
  uint8_t palette = 0, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0 .. 3: sums, [row tile][column tile]; 4, 5: rows of A; 6, 7: columns of B. All have 16 rows of 64 bytes.
constexpr TileConfig block_config() {
  TileConfig config;
  config.palette = 1;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = kTileBytes;
    config.rows[t] = kTileRows;
  }
  return config;
}

struct MachineTiles {
  static void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config) : "memory"); }
  static void release() { asm volatile("tilerelease" ::: "memory"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  // For an operand that is read once, so that it does not evict the ring and B's codes from L1.
  template <int kTile>
  static void load_streamed(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  // sums += a * b
  template <TileProduct kProduct, int kSums, int kA, int kB>
  static void multiply() {
    if constexpr (kProduct == TileProduct::kSS)
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
    else if constexpr (kProduct == TileProduct::kSU)
      asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
    else if constexpr (kProduct == TileProduct::kUS)
      asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
    else if constexpr (kProduct == TileProduct::kUU)
      asm volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
    else
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace bitgrad::kernels::gemm_detail
