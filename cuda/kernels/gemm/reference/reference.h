// Fully general reference kernels of family gemm on the device: any dtype but fp64, either storage order, every
// ScaleMap.
//   gemm_int_narrow_simt  exact integer products of codes of at most 8 bits
//   gemm_int_wide_simt    the same if a side is int32 or int64; sums modulo 2^128, saturated
//   gemm_f32_chain512_simt, gemm_f32_table_simt  float products in those orders (docs/numerics.md section 4)
// A block of 256 threads computes a tile of 64 x 64 (wide: 32 x 32), in steps of 32 contracted indices through shared
// memory.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

inline constexpr int kReferenceTile = 64, kNarrowTile = 64, kWideTile = 32, kReferenceStep = 32,
                     kReferenceThreads = 256;

enum class ProductForm : uint8_t { kPlain, kOffsets, kGroups };

struct IntArgs {
  Operand a, b;
  Output out;
  ProductForm form;
  int64_t group;  // contracted indices summed exactly before a scale is applied; k without groups
  bool blocks;    // A has groups, too
};

// Where B's scale is folded.
enum class FoldForm : uint8_t { kNone, kIntoA, kOntoSum };

struct FloatArgs {
  Operand a, b;
  Output out;
  FoldForm fold;
  bool bare_b;
  int32_t codes, groups;  // parameters of the table order
  Levels levels_a, levels_b;
};

BITGRAD_GLOBAL void gemm_int_narrow_simt(IntArgs args);
BITGRAD_GLOBAL void gemm_int_wide_simt(IntArgs args);
BITGRAD_GLOBAL void gemm_f32_chain512_simt_kernel(FloatArgs args);
BITGRAD_GLOBAL void gemm_f32_table_simt_kernel(FloatArgs args);

// Epilogue of an integer product whose sums [m, n] a library computed: scales, bias, accumulation, rounding.
struct FinishArgs {
  const int32_t* sums;
  FreeParams a, b;
  Output out;
};
BITGRAD_GLOBAL void gemm_finish_sums(FinishArgs args);

}  // namespace bitgrad::cuda::gemm
