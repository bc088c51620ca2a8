// Register loops on AMX tiles for the units of bench_gemm. Call them only where the system granted tiles (isa::kAmx).
#pragma once

#include <cstdint>

namespace bitgrad::bench {

// Per turn, four products of 16 x 16 sums, each over 64 int8 or 32 bf16 pairs: 4 * 16384 or 4 * 8192 multiply-adds.
void amx_int8(int64_t turns);
void amx_bf16(int64_t turns);

}  // namespace bitgrad::bench
