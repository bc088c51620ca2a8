// Shared by all wgmma kernels: which products are supported, their cost, and their launches.
#pragma once

#include <optional>

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/wgmma/args.h"

namespace bitgrad::cuda::gemm {

// The form of a tile: its columns, the blocks of a cluster, which are stacked vertically, and its rows. With 64 rows
// the consumers take turns.
struct TileForm {
  int columns, cluster, rows = 128;
};
inline constexpr TileForm kWideTile256{256, 2}, kNarrowTile128{128, 1}, kTurnsTile256{256, 4, 64};

// Whether an exact product of a single sum, without offsets or groups, can use wgmma: operands stored [free, k] in
// canonical rows that TMA can read (rows and strides of 16 bytes), raw sums within int32, k > 0, and an output that the
// device supports.
bool wgmma_operand(const GemmOperand& x, int64_t batch_step);
bool wgmma_product(const GemmArgs& args, double largest_product);

// What BITGRAD_WGMMA_FORM names, for measurements: wide, narrow or turns; nullopt: nothing. Throws Error for other
// names.
std::optional<TileForm> named_form();
// The form with the shortest predicted time for a matrix of rows x columns with k_bytes bytes of k, or the named one.
// `turns` allows kTurnsTile256: naming it for others is an Error.
TileForm choose_form(int64_t rows, int64_t columns, int64_t k_bytes, bool turns);
// Number of parts to split k into: the most that can run at once on an H200 (gemm/args.h) if that is predicted to be
// faster than no split, else 1; 1 if a form is named.
int split_parts(int64_t rows, int64_t columns, int64_t k_bytes, bool turns);
// `parts` is 1, or the number of parts of a split product.
double tiles_cost(const GemmArgs& args, int64_t rows, int64_t columns, int64_t k_bytes, bool turns, int parts = 1);

// The value of raw code r of an operand is factor r - base.
struct RawRule {
  int32_t factor, base;
};
RawRule raw_rule(DType dtype);

// The arguments that do not depend on the form of the operands: output, parameters, sum rule.
WgmmaArgs common_args(const GemmArgs& args);
// Whether the rule needs sums of raw codes. Canonical codes of 1 or 8 bits.
bool needs_sums_a(const GemmArgs& args);
bool needs_sums_b(const GemmArgs& args);
// Passes sums that came with the codes (GemmOperand::row_sums) to the rule and computes the others in one launch: A's
// into sums[0 .. m), B's after them.
void sum_codes(const GemmArgs& args, bool of_a, bool of_b, int32_t* sums, SumRule& rule);

// Which stores the output allows, with their arguments in out.store. Rows and columns are those of the tile's operands:
// for frag64 operands the weights are the rows, i.e. columns of C.
bool stores_fragments(const GemmArgs& args, bool rows_are_weights);
WgmmaStore plan_store(const GemmArgs& args, bool rows_are_weights, WgmmaArgs& out);

using WgmmaKernel = void (*)(WgmmaArgs);
// rows and columns are those of the tile's operands. bits is the width of a row operand in frag64, else 8. blocks
// limits the grid to what runs at once. Processes args.split.parts copies of the tiles.
void launch_tiles(WgmmaKernel kernel, const char* name, WgmmaArgs args, int64_t rows, int64_t columns, TileForm form,
                  int bits, int blocks);
int multiprocessors();  // of the current device

// Run gemm_s8_s8_wgmma or gemm_b1_b1_wgmma in a given form on a given number of blocks.
void run_wgmma_ss(const GemmArgs& args, TileForm form, int blocks);
void run_wgmma_split(const GemmArgs& args, int parts, int blocks);
// Same for gemm_s8_w_wgmma.
void run_wgmma_rs(const GemmArgs& args, TileForm form, int blocks);

}  // namespace bitgrad::cuda::gemm
