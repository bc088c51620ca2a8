#include "bench_gemm_amx.h"

#if defined(__x86_64__)
namespace bitgrad::bench {

namespace {

// Tiles have 16 rows of 64 bytes. Four sums, two tiles of A and two of B are all in registers. The tile configuration
// is per thread, so each call loads and releases it. Only for CPUs and systems that granted tiles (isa::kAmx).
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
struct alignas(64) TileData {
  uint8_t bytes[1024];
};

#define BITGRAD_TILE_LOOP(product)                                                                 \
  const TileConfig config;                                                                         \
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");                                           \
  asm volatile("tilezero %%tmm0; tilezero %%tmm1; tilezero %%tmm2; tilezero %%tmm3" ::: "memory"); \
  asm volatile(                                                                                    \
      "tileloadd (%0,%1,1), %%tmm4; tileloadd (%0,%1,1), %%tmm5; "                                 \
      "tileloadd (%0,%1,1), %%tmm6; tileloadd (%0,%1,1), %%tmm7" ::"r"(data.bytes),                \
      "r"(int64_t{64})                                                                             \
      : "memory");                                                                                 \
  for (int64_t t = 0; t < turns; ++t)                                                              \
    asm volatile(product " %%tmm6, %%tmm4, %%tmm0; " product " %%tmm7, %%tmm4, %%tmm1; " product   \
                         " %%tmm6, %%tmm5, %%tmm2; " product " %%tmm7, %%tmm5, %%tmm3" ::          \
                             : "memory");                                                          \
  asm volatile("tilerelease" ::: "memory")

}  // namespace

void amx_int8(int64_t turns) {
  TileData data;
  for (int i = 0; i < 1024; ++i) data.bytes[i] = static_cast<uint8_t>(i * 37);
  BITGRAD_TILE_LOOP("tdpbssd");
}

void amx_bf16(int64_t turns) {
  TileData data;
  for (int i = 0; i < 1024; ++i) data.bytes[i] = i % 2 == 0 ? static_cast<uint8_t>(i) : 0x3F;  // 0.5 .. 1
  BITGRAD_TILE_LOOP("tdpbf16ps");
}

#undef BITGRAD_TILE_LOOP

}  // namespace bitgrad::bench
#endif
