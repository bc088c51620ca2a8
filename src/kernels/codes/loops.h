// The loops of family codes as a table of functions, one table per ISA. All tables give the same codes.
#pragma once

#include "kernels/codes.h"
#include "kernels/isa_loops.h"

namespace bitgrad::kernels::codes {

struct CodesLoops {
#define BITGRAD_ISA_LOOP(family, order, result, name, parameters) result(*name) parameters;
#include "kernels/codes/kernels.inc"
#undef BITGRAD_ISA_LOOP
};

BITGRAD_ISA_TABLES(CodesLoops)

}  // namespace bitgrad::kernels::codes
