// BITGRAD_UNROLL before a loop lets the arrays it indexes stay in registers. BITGRAD_NO_UNROLL is for loops with a
// large body that rarely run.
#pragma once

#if defined(__CUDACC__)
#define BITGRAD_UNROLL _Pragma("unroll")
#define BITGRAD_NO_UNROLL _Pragma("unroll 1")
#else
#define BITGRAD_UNROLL
#define BITGRAD_NO_UNROLL
#endif
