// BITGRAD_UNROLL before a loop: arrays that it indexes can be in registers. BITGRAD_NO_UNROLL: its body is large and
// runs rarely.
#pragma once

#if defined(__CUDACC__)
#define BITGRAD_UNROLL _Pragma("unroll")
#define BITGRAD_NO_UNROLL _Pragma("unroll 1")
#else
#define BITGRAD_UNROLL
#define BITGRAD_NO_UNROLL
#endif
