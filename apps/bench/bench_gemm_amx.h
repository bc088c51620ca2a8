// Register loops on AMX tiles for bench_gemm's units, only to be called where the system granted tiles (isa::kAmx).
#pragma once

#include <cstdint>

namespace bitgrad::bench {

// Four products of 16 x 16 sums a turn: 64 int8 or 32 bf16 pairs each. 16384 * 4 and 8192 * 4 multiply-adds a turn.
void amx_int8(int64_t turns);
void amx_bf16(int64_t turns);

}  // namespace bitgrad::bench
