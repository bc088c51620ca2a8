// What the wgmma kernels share: which products they take, what they cost, and their launches.
#pragma once

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/wgmma/args.h"

namespace bitgrad::cuda::gemm {

// The form of a tile: its columns, the blocks of a cluster, which lie under each other, and its rows. 64 rows: the
// consumers take turns.
struct TileForm {
  int columns, cluster, rows = 128;
};
inline constexpr TileForm kWideTile256{256, 2}, kNarrowTile128{128, 1}, kTurnsTile256{256, 4, 64};

// An exact product of one sum without offsets or groups, with operands that lie [free, k] in canonical rows that TMA
// can read (rows and strides of 16 bytes), raw sums within int32, k > 0, and an output the device has.
bool wgmma_operand(const GemmOperand& x, int64_t batch_step);
bool wgmma_product(const GemmArgs& args, double largest_product);

// The form that is done earliest, and the nanoseconds it takes, for a matrix of rows x columns with k_bytes bytes of k.
// turns: whether kTurnsTile256 may be taken.
TileForm choose_form(int64_t rows, int64_t columns, int64_t k_bytes, bool turns);
// Number of parts to split k into: the largest that runs at once on an H200 (cost.h), where it is predicted to be
// faster than no split; 1: do not split.
int split_parts(int64_t rows, int64_t columns, int64_t k_bytes, bool turns);
// parts: 1, or those of a product that is split.
double tiles_cost(const GemmArgs& args, int64_t rows, int64_t columns, int64_t k_bytes, bool turns, int parts = 1);

// Number of raw code r of an operand is factor r - base.
struct RawRule {
  int32_t factor, base;
};
RawRule raw_rule(DType dtype);

// Everything of the arguments that does not depend on the operands' form: output, parameters, the rule of sums.
WgmmaArgs common_args(const GemmArgs& args);
// Sums of raw codes that the rule needs; canonical codes of 1 or 8 bits.
bool needs_sums_a(const GemmArgs& args);
bool needs_sums_b(const GemmArgs& args);
// Those that came with the codes (GemmOperand::row_sums), to the rule; the others in one launch: A's to sums[0 .. m),
// B's behind them.
void sum_codes(const GemmArgs& args, bool of_a, bool of_b, int32_t* sums, SumRule& rule);

// The stores that the output allows, with their arguments in out.store. rows and columns: of the tile's operands (for
// operands in frag64 the weights are the rows, so columns of C).
bool stores_fragments(const GemmArgs& args, bool rows_are_weights);
WgmmaStore plan_store(const GemmArgs& args, bool rows_are_weights, WgmmaArgs& out);

using WgmmaKernel = void (*)(WgmmaArgs);
// rows, columns: of the tile operands. bits: of the row operand where it lies in frag64, else 8. blocks: of the grid at
// most, what runs at once.
// args.split.parts copies of the tiles are walked over.
void launch_tiles(WgmmaKernel kernel, const char* name, WgmmaArgs args, int64_t rows, int64_t columns, TileForm form,
                  int bits, int blocks);
int multiprocessors();  // of the current device

// The list entries gemm_s8_s8_wgmma and gemm_b1_b1_wgmma in a given form on a given number of blocks.
void run_wgmma_ss(const GemmArgs& args, TileForm form, int blocks);
void run_wgmma_split(const GemmArgs& args, int parts, int blocks);
// The row gemm_s8_w_wgmma alike.
void run_wgmma_rs(const GemmArgs& args, TileForm form, int blocks);

}  // namespace bitgrad::cuda::gemm
