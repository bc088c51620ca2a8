// CPU feature detection, and the ISA cap set by BITGRAD_ISA or by a test.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bitgrad {

// A set of instruction-set extensions. Each kernel declares the set it requires.
using IsaMask = uint32_t;
namespace isa {
inline constexpr IsaMask kScalar = 0;
inline constexpr IsaMask kAvx2 = 1u << 0;    // AVX2 + FMA + F16C + BMI2
inline constexpr IsaMask kAvx512 = 1u << 1;  // F + BW + DQ + VL
inline constexpr IsaMask kAvx512Vnni = 1u << 2;
inline constexpr IsaMask kAvx512Popcnt = 1u << 3;  // VPOPCNTDQ
inline constexpr IsaMask kAvx512Bf16 = 1u << 4;
inline constexpr IsaMask kAmx = 1u << 5;         // TILE + INT8 + BF16, with OS permission; plus VBMI + GFNI
inline constexpr IsaMask kAvx512Vbmi = 1u << 6;  // VBMI: byte permutes
// CUDA features, by compute capability (only for kernels of DeviceKind::kCuda).
inline constexpr IsaMask kAnyCuda = 0;
inline constexpr IsaMask kSm80Mma = 1u << 16;   // 8.0 and later: mma.sync on 8-bit integers, cp.async
inline constexpr IsaMask kB1Mma = 1u << 17;     // 8.0 to 9.0: native 1-bit mma (AND)
inline constexpr IsaMask kWgmma = 1u << 18;     // 9.0: wgmma and TMA
inline constexpr IsaMask kCublasLt = 1u << 19;  // cuBLASLt knows the device; its kernels ask for it
}  // namespace isa

// The four caps, lowest first. A cap keeps every extension of its own level and below.
enum class IsaLevel { kScalar, kAvx2, kAvx512, kAmx };

// Extensions that kernels may use now: those that the CPU and the OS grant, minus BITGRAD_ISA_WITHOUT
// (docs/testing.md), limited by the cap. The first call reads BITGRAD_ISA (scalar | avx2 | avx512 | amx; throws Error
// for any other value) and caps oneDNN as well.
IsaMask cpu_isa();
// Replaces the cap (for tests and benchmarks) and invalidates cached kernel choices.
void set_isa_cap(IsaLevel level);
IsaLevel isa_cap();
// Incremented by every set_isa_cap, so that caches of kernel choices can detect that they are stale.
uint64_t isa_generation();
// Parses a level name. Throws Error listing the four levels if `name` is none of them.
IsaLevel parse_isa_level(std::string_view name);
// For example "avx2 avx512 vnni popcnt bf16"; "scalar" for an empty mask.
std::string isa_names(IsaMask mask);
// The model name that the CPU reports.
std::string cpu_model_name();

// Which kernels may run, by the bits of their results. docs/numerics.md section 4.

// kFast: same bits for any number of threads. kStrict: also on every ISA; only kernels whose order of summation exists
// on every ISA are candidates.
enum class BitsMode : uint8_t { kFast, kStrict };
// Process-wide; kFast by default.
BitsMode bits_mode();
void set_bits_mode(BitsMode mode);

}  // namespace bitgrad
