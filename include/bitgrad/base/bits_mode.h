// Which kernels may run, by the bits of their results. docs/numerics.md section 4.
#pragma once

#include <cstdint>

namespace bitgrad {

// kFast: same bits for any number of threads. kStrict: also on every ISA; only kernels whose order of summation exists
// on every ISA are candidates.
enum class BitsMode : uint8_t { kFast, kStrict };
// Process-wide; kFast by default.
BitsMode bits_mode();
void set_bits_mode(BitsMode mode);

}  // namespace bitgrad
