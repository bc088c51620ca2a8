// Family codes: calls the loops of the allowed ISA. Callers split the work.
#include "kernels/codes.h"

#include "kernels/codes/loops.h"

namespace bitgrad::kernels::codes {

void requantize_rows(const RequantizeCall& call) { loops().requantize_rows(call); }
void add_codes(const AddCall& call) { loops().add_codes(call); }
void add_to_sums(int64_t n, const int8_t* x, int32_t* sums) { loops().add_to_sums(n, x, sums); }
void raise_codes(int64_t n, const int8_t* x, uint8_t* y) { loops().raise_codes(n, x, y); }

bool has_product() { return (cpu_isa() & isa::kAvx512Vnni) != 0; }

}  // namespace bitgrad::kernels::codes
