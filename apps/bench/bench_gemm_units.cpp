// Register loops of bench_gemm. Each repeats the instructions that a kernel cannot avoid in one step of the product,
// with independent sums, no loads and no stores. "Limit" is multiply-adds (MACs) per cycle if two ports execute 512
// bits (Intel Ice Lake to Emerald Rapids: p0, p5) or three execute 256 bits (p0, p1, p5), taken from the instruction
// tables of uops.info (Abel and Reineke 2019, arXiv 1810.04610). The loops measure what a machine really achieves.
//
// | unit | instructions of a step | MACs | limit |
// |---|---|---|---|
// | fp32 FMA, 512 | VFMADD, p05 | 16 | 32 |
// | fp32 FMA, 256 | VFMADD, p01 | 8 | 16 |
// | bf16 dot, 512 | VDPBF16PS | 32 | 32 where one port has it, 64 where two |
// | int8 dot, 512 | VPDPBUSD | 64 | 64 where one port has it, 128 where two |
// | int16 dot, 256 | VPMADDWD p01, VPADDD p015: codes widened to int16, so no saturation | 16 | 24 |
// | b1 x b1, 512 | VPXOR p05, VPOPCNT p5, VPADD p05 | 512 | 341: 3 instructions on 2 ports |
// | b1 x b1, 512, carry-save | 3 VPTERNLOG p05, VPOPCNT, VPADD; two words | 1024 | 410: 5 on 2 ports |
// | t x b1, 512 | VPTERNLOG, VPOPCNT, VPADD | 512 | 341; an adder would cost the two that it saves |
// | t x t, 512 | VPAND, VPTERNLOG, 2 VPOPCNT, 2 VPADD | 512 | 171: 6 on 2 ports |
// | b1 x b1, 256 | VPXOR, VPSRLD, 2 VPAND, 2 VPSHUFB, 2 VPADDB | 256 | 96: 8 on 3 ports |
// | t x b1, 256 | the same and one VPAND | 256 | 85: 9 on 3 ports |
// | t x t, 256 | VPAND, VPXOR, VPAND, VPANDN and two counts of 7 | 256 | 43: 18 on 3 ports |
// | AMX int8 / bf16 | TDPBSSD / TDPBF16PS on four sums, two tiles of each operand | 16384 / 8192 | 1024 / 512 |
//
// Widening of byte sums is left out, as it happens once in 31 words. Products of small integers may use the int8 unit
// too.
#include "bench_gemm.h"

#include <algorithm>
#include <ctime>

#include "bitgrad/base/cpu.h"
#include "shared/measure.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

// Hides a value from the compiler, so that it can neither hoist a step out of the loop nor merge steps. No instruction.
#define BITGRAD_OPAQUE(x) asm volatile("" : "+v"(x))
#define BITGRAD_UNROLL _Pragma("GCC unroll 16") for
// `step` on each of `count` sums, which begin as `zero`, for all turns.
#define BITGRAD_STEPS(Vector, count, zero, step)            \
  Vector sums[count];                                       \
  BITGRAD_UNROLL(int i = 0; i < count; ++i) sums[i] = zero; \
  for (int64_t t = 0; t < turns; ++t) {                     \
    BITGRAD_UNROLL(int i = 0; i < count; ++i) {             \
      step;                                                 \
      BITGRAD_OPAQUE(sums[i]);                              \
    }                                                       \
  }

namespace bitgrad::bench {
namespace {

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2,popcnt")

constexpr int kSums256 = 10;  // of 16 registers

void fp32_fma_256(int64_t turns) {
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  BITGRAD_STEPS(__m256, kSums256, _mm256_setzero_ps(), sums[i] = _mm256_fmadd_ps(a, b, sums[i]))
}

void int16_dot_256(int64_t turns) {
  __m256i a = _mm256_set1_epi16(3), b = _mm256_set1_epi16(-5);
  BITGRAD_STEPS(__m256i, kSums256, _mm256_setzero_si256(), BITGRAD_OPAQUE(b);
                sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(a, b)))
}

inline __m256i byte_counts(__m256i x) {
  const __m256i table =
      _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const __m256i low = _mm256_set1_epi8(0x0F);
  return _mm256_add_epi8(_mm256_shuffle_epi8(table, _mm256_and_si256(x, low)),
                         _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi32(x, 4), low)));
}

enum class Bits { kB1B1, kTB1, kTT };

template <Bits kind>
void bits_256(int64_t turns) {
  constexpr int kSums = 4;  // besides sums of two kinds, the table, the mask and four operands
  __m256i sums[kSums], a = _mm256_set1_epi32(0x35A91C7E), b = _mm256_set1_epi32(0x6C21F08B), a1 = b, b1 = a;
  BITGRAD_UNROLL(int i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_si256();
  for (int64_t t = 0; t < turns; ++t) {
    BITGRAD_UNROLL(int i = 0; i < kSums; ++i) {
      BITGRAD_OPAQUE(b);
      if constexpr (kind == Bits::kB1B1) {
        sums[i] = _mm256_add_epi8(sums[i], byte_counts(_mm256_xor_si256(a, b)));
      } else if constexpr (kind == Bits::kTB1) {
        sums[i] = _mm256_add_epi8(sums[i], byte_counts(_mm256_and_si256(a1, _mm256_xor_si256(a, b))));
      } else {
        BITGRAD_OPAQUE(b1);
        const __m256i both = _mm256_and_si256(a, b), differ = _mm256_xor_si256(a1, b1);
        sums[i] = _mm256_sub_epi8(_mm256_add_epi8(sums[i], byte_counts(_mm256_andnot_si256(differ, both))),
                                  byte_counts(_mm256_and_si256(both, differ)));
      }
      BITGRAD_OPAQUE(sums[i]);
    }
  }
}

#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vpopcntdq,avx512bf16")

constexpr int kSums512 = 16;  // of 32 registers

void fp32_fma_512(int64_t turns) {
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  BITGRAD_STEPS(__m512, kSums512, _mm512_setzero_ps(), sums[i] = _mm512_fmadd_ps(a, b, sums[i]))
}

void bf16_dot_512(int64_t turns) {
  const __m512i a = _mm512_set1_epi16(0x3F00), b = a;
  BITGRAD_STEPS(__m512, kSums512, _mm512_setzero_ps(),
                asm volatile("vdpbf16ps %2, %1, %0"
                             : "+v"(sums[i])
                             : "v"(a), "v"(b)))
}

void int8_dot_512(int64_t turns) {
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  BITGRAD_STEPS(__m512i, kSums512, _mm512_setzero_si512(), sums[i] = _mm512_dpbusd_epi32(sums[i], a, b))
}

constexpr int kTa = 0xF0, kTb = 0xCC, kTc = 0xAA;  // columns of the truth table of VPTERNLOG

template <Bits kind>
void bits_512(int64_t turns) {
  constexpr int kSums = 8;
  __m512i sums[kSums], minus[kSums], a = _mm512_set1_epi32(0x35A91C7E), b = _mm512_set1_epi32(0x6C21F08B), a1 = b;
  BITGRAD_UNROLL(int i = 0; i < kSums; ++i) sums[i] = minus[i] = _mm512_setzero_si512();
  for (int64_t t = 0; t < turns; ++t) {
    BITGRAD_UNROLL(int i = 0; i < kSums; ++i) {
      BITGRAD_OPAQUE(b);
      __m512i x;
      if constexpr (kind == Bits::kB1B1) {
        x = _mm512_xor_si512(a, b);
      } else if constexpr (kind == Bits::kTB1) {
        x = _mm512_ternarylogic_epi32(b, a, a1, kTa & (kTb ^ kTc));
      } else {
        x = _mm512_and_si512(a, b);
        const __m512i y = _mm512_ternarylogic_epi32(b, x, a1, kTb & (kTa ^ kTc));
        minus[i] = _mm512_add_epi32(minus[i], _mm512_popcnt_epi32(y));
        BITGRAD_OPAQUE(minus[i]);
      }
      sums[i] = _mm512_add_epi32(sums[i], _mm512_popcnt_epi32(x));
      BITGRAD_OPAQUE(sums[i]);
    }
  }
}

void bits_carry_save_512(int64_t turns) {
  constexpr int kSums = 8;
  __m512i twos[kSums], one[kSums], a1 = _mm512_set1_epi32(0x35A91C7E), b1 = _mm512_set1_epi32(0x6C21F08B), a2 = b1,
                                   b2 = _mm512_set1_epi32(0x1B7D42E9);
  BITGRAD_UNROLL(int i = 0; i < kSums; ++i) {
    one[i] = twos[i] = _mm512_setzero_si512();
    BITGRAD_OPAQUE(one[i]);
  }
  for (int64_t t = 0; t < turns; ++t) {
    BITGRAD_UNROLL(int i = 0; i < kSums; ++i) {
      const __m512i q = _mm512_ternarylogic_epi32(one[i], a1, b1, kTa ^ kTb ^ kTc);
      const __m512i s = _mm512_ternarylogic_epi32(q, a2, b2, kTa ^ kTb ^ kTc);
      const __m512i carry = _mm512_ternarylogic_epi32(q, s, one[i], (kTa & ~kTb & 0xFF) | (~kTa & kTc & 0xFF));
      one[i] = s;
      BITGRAD_OPAQUE(one[i]);
      twos[i] = _mm512_add_epi32(twos[i], _mm512_popcnt_epi32(carry));
      BITGRAD_OPAQUE(twos[i]);
    }
  }
}

#pragma GCC pop_options

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

// Per turn, four products of 16 x 16 sums, each over 64 int8 or 32 bf16 pairs: 4 * 16384 or 4 * 8192 multiply-adds.
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

bool is_small_integer(DType d) {
  const DTypeKind kind = d.kind();
  return d.is_code() && (kind == DTypeKind::kInt || kind == DTypeKind::kUint || kind == DTypeKind::kSign);
}
bool is_sign(DType d) { return d.kind() == DTypeKind::kSign; }
bool is_ternary(DType d) { return d.kind() == DTypeKind::kInt && d.bits() == 2 && d.info().qmin >= -1; }

bool b1_b1(DType a, DType b) { return is_sign(a) && is_sign(b); }
bool t_b1(DType a, DType b) { return (is_ternary(a) && is_sign(b)) || (is_sign(a) && is_ternary(b)); }
bool t_t(DType a, DType b) { return is_ternary(a) && is_ternary(b); }
bool integers(DType a, DType b) { return is_small_integer(a) && is_small_integer(b); }
bool is_bf16_or_sign(DType d) { return d == dtypes::bf16 || is_sign(d); }
bool bf16_bf16(DType a, DType b) { return is_bf16_or_sign(a) && is_bf16_or_sign(b) && !(is_sign(a) && is_sign(b)); }
// Any code can be expanded to fp32; integers have faster units.
bool floats(DType a, DType b) { return !integers(a, b) && a != dtypes::fp64 && b != dtypes::fp64; }

struct Unit {
  const char* name;
  IsaMask needs;
  bool (*serves)(DType a, DType b);
  double macs;  // per turn
  void (*run)(int64_t turns);
};
constexpr IsaMask kPopcount = isa::kAvx512 | isa::kAvx512Popcnt;
constexpr Unit kUnits[] = {
    {"fp32 FMA 512", isa::kAvx512, floats, 16 * kSums512, fp32_fma_512},
    {"fp32 FMA 256", isa::kAvx2, floats, 8 * kSums256, fp32_fma_256},
    {"bf16 dot 512", isa::kAvx512 | isa::kAvx512Bf16, bf16_bf16, 32 * kSums512, bf16_dot_512},
    {"int8 dot 512", isa::kAvx512 | isa::kAvx512Vnni, integers, 64 * kSums512, int8_dot_512},
    {"AMX int8", isa::kAmx, integers, 16384 * 4, amx_int8},
    {"AMX bf16", isa::kAmx, bf16_bf16, 8192 * 4, amx_bf16},
    {"int16 dot 256", isa::kAvx2, integers, 16 * kSums256, int16_dot_256},
    {"popcount 512", kPopcount, b1_b1, 512 * 8, bits_512<Bits::kB1B1>},
    {"popcount 512, carry-save", kPopcount, b1_b1, 1024 * 8, bits_carry_save_512},
    {"ternary popcount 512", kPopcount, t_b1, 512 * 8, bits_512<Bits::kTB1>},
    {"two ternary popcounts 512", kPopcount, t_t, 512 * 8, bits_512<Bits::kTT>},
    {"nibble popcount 256", isa::kAvx2, b1_b1, 256 * 4, bits_256<Bits::kB1B1>},
    {"ternary nibble popcount 256", isa::kAvx2, t_b1, 256 * 4, bits_256<Bits::kTB1>},
    {"two ternary nibble popcounts 256", isa::kAvx2, t_t, 256 * 4, bits_256<Bits::kTT>},
};

}  // namespace

Units::Units(int64_t repeat) {
  constexpr int64_t kTurns = 4096;
  std::vector<Contestant> all;
  for (const Unit& unit : kUnits) {
    if ((unit.needs & ~cpu_isa()) != 0) continue;
    units_.push_back({{unit.name, unit.macs * kTurns}, unit.serves});
    all.push_back({unit.name, [run = unit.run] { run(kTurns); }, 1, false, {}});
  }
  measure(all, repeat);
  for (size_t i = 0; i < all.size(); ++i) units_[i].peak.gmacs /= all[i].median();
}

}  // namespace bitgrad::bench

#undef BITGRAD_OPAQUE
#undef BITGRAD_UNROLL
#undef BITGRAD_STEPS
#else
namespace bitgrad::bench {
Units::Units(int64_t) {}
}  // namespace bitgrad::bench
#endif

namespace bitgrad::bench {

const UnitPeak* Units::fastest(DType a, DType b) const {
  const UnitPeak* best = nullptr;
  for (const Measured& unit : units_)
    if (unit.serves(a, b) && (best == nullptr || unit.peak.gmacs > best->gmacs)) best = &unit.peak;
  return best;
}

double clock_ghz() {
#if defined(__x86_64__)
  constexpr int64_t kProducts = 1000000;
  double best = 0;
  for (int i = 0; i < 9; ++i) {
    uint64_t x = 3;
    timespec begin{}, end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int64_t k = 0; k < kProducts; ++k) asm volatile("imul %0, %0" : "+r"(x));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    const auto ns = static_cast<double>((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec);
    best = std::max(best, 3.0 * static_cast<double>(kProducts) / ns);
  }
  return best;
#else
  return 0;
#endif
}

}  // namespace bitgrad::bench
