// What this CPU can do, and the cap that BITGRAD_ISA or a test puts on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bitgrad {

// A set of instruction groups. A kernel names the set that it needs.
using IsaMask = uint32_t;
namespace isa {
inline constexpr IsaMask kScalar = 0;
inline constexpr IsaMask kAvx2 = 1u << 0;    // AVX2 + FMA + F16C + BMI2
inline constexpr IsaMask kAvx512 = 1u << 1;  // F + BW + DQ + VL
inline constexpr IsaMask kAvx512Vnni = 1u << 2;
inline constexpr IsaMask kAvx512Popcnt = 1u << 3;  // VPOPCNTDQ
inline constexpr IsaMask kAvx512Bf16 = 1u << 4;
inline constexpr IsaMask kAmx = 1u << 5;         // TILE + INT8 + BF16, granted by the system, beside VBMI + GFNI
inline constexpr IsaMask kAvx512Vbmi = 1u << 6;  // VBMI: byte permutes
// Of CUDA devices, by compute capability (rows of DeviceKind::kCuda only).
inline constexpr IsaMask kAnyCuda = 0;
inline constexpr IsaMask kSm80Mma = 1u << 16;   // mma.sync of 8-bit integers and cp.async: 8.0 and later
inline constexpr IsaMask kB1Mma = 1u << 17;     // native mma of bits (AND): 8.0 .. 9.0
inline constexpr IsaMask kWgmma = 1u << 18;     // wgmma and TMA: 9.0
inline constexpr IsaMask kCublasLt = 1u << 19;  // the library was found at run time
}  // namespace isa

// The four caps, lowest first: a cap keeps all groups of its level and below.
enum class IsaLevel { kScalar, kAvx2, kAvx512, kAmx };

// Groups that kernels may use now: what CPU and system grant, less BITGRAD_ISA_WITHOUT (docs/testing.md), under a cap.
// The first call reads BITGRAD_ISA (scalar | avx2 | avx512 | amx; anything else is an Error) and caps oneDNN too.
IsaMask cpu_isa();
// Replaces the cap (tests, benchmarks). Kernel look-ups made before are forgotten.
void set_isa_cap(IsaLevel level);
IsaLevel isa_cap();
// Grows with each set_isa_cap, so that caches of choices know that they are stale.
uint64_t isa_generation();
// Parses a level name; throws Error that lists the four.
IsaLevel parse_isa_level(std::string_view name);
// "avx2 avx512 vnni popcnt bf16", "scalar" for none.
std::string isa_names(IsaMask mask);
// The CPU's own name.
std::string cpu_model_name();

}  // namespace bitgrad
