// Float products in the orders chain512 and table. Each output has its own chain, so the bits match the CPU.
#include "cuda/device/builtins.h"
#include "cuda/kernels/gemm/reference/reference.h"

namespace bitgrad::cuda::gemm {
namespace {

constexpr int kTile = kReferenceTile, kStep = kReferenceStep, kSide = 4, kPitch = kTile + 1, kPanel = 512;

// Loads tile[k][free]: A's values, times B's scale if it is folded into A. Positions beyond the operand are left unset
// and never read.
BITGRAD_DEVICE void load_a(const FloatArgs& args, int64_t f0, int64_t k0, float (*tile)[kPitch]) {
  const Operand& x = args.a;
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kStep; at += kReferenceThreads) {
    const int f = x.k_major ? at % kTile : at / kStep, k = x.k_major ? at / kTile : at % kStep;
    if (f0 + f >= args.out.m || k0 + k >= args.out.k) continue;
    const float v = float_value(x, args.levels_a, f0 + f, k0 + k);
    tile[k][f] = args.fold == FoldForm::kIntoA ? v * args.b.scale.scale[param_at(args.b, 0, k0 + k)] : v;
  }
}
BITGRAD_DEVICE void load_b(const FloatArgs& args, int64_t f0, int64_t k0, float (*tile)[kPitch]) {
  const Operand& x = args.b;
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kStep; at += kReferenceThreads) {
    const int f = x.k_major ? at % kTile : at / kStep, k = x.k_major ? at / kTile : at % kStep;
    if (f0 + f >= args.out.n || k0 + k >= args.out.k) continue;
    tile[k][f] =
        args.bare_b ? float_number(x, args.levels_b, f0 + f, k0 + k) : float_value(x, args.levels_b, f0 + f, k0 + k);
  }
}

// The part of a thread's kSide x kSide outputs that the matrix has, the same for all threads of a block: small products
// have one.
struct Part {
  int rows, columns;
};

// One fma chain per panel of 512; panel sums are added in order.
struct Chain {
  float chain[kSide][kSide] = {}, sum[kSide][kSide] = {};

  BITGRAD_DEVICE void add(const FloatArgs& args, Part part, const float* a, const float* b, int64_t k) {
    const bool last = k % kPanel == kPanel - 1 || k + 1 == args.out.k;
    BITGRAD_UNROLL
    for (int r = 0; r < kSide; ++r) {
      if (r >= part.rows) continue;
      BITGRAD_UNROLL
      for (int c = 0; c < kSide; ++c) {
        if (c >= part.columns) continue;
        chain[r][c] = fmaf(a[r], b[c], chain[r][c]);
        if (!last) continue;
        sum[r][c] = k < kPanel ? chain[r][c] : sum[r][c] + chain[r][c];
        chain[r][c] = 0;
      }
    }
  }
};

// Sums terms into groups, groups into passes, passes into the total.
struct Table {
  float group[kSide][kSide] = {}, pass[kSide][kSide] = {}, sum[kSide][kSide] = {};

  BITGRAD_DEVICE void add(const FloatArgs& args, Part part, const float* a, const float* b, int64_t k) {
    const int depth = args.codes * args.groups, in_pass = static_cast<int>(k % depth), in_group = in_pass % args.codes;
    const bool end = k + 1 == args.out.k, group_end = end || in_group == args.codes - 1;
    const bool pass_end = end || in_pass == depth - 1;
    BITGRAD_UNROLL
    for (int r = 0; r < kSide; ++r) {
      if (r >= part.rows) continue;
      BITGRAD_UNROLL
      for (int c = 0; c < kSide; ++c) {
        if (c >= part.columns) continue;
        const float term = a[r] * b[c];
        group[r][c] = in_group == 0 ? term : group[r][c] + term;
        if (group_end) pass[r][c] = in_pass < args.codes ? group[r][c] : pass[r][c] + group[r][c];
        if (pass_end) sum[r][c] = k < depth ? pass[r][c] : sum[r][c] + pass[r][c];
      }
    }
  }
};

template <typename Order>
BITGRAD_DEVICE void run_tile(const FloatArgs& args) {
  __shared__ float a[kStep][kPitch], b[kStep][kPitch];
  const Output& out = args.out;
  const unsigned down = static_cast<unsigned>((out.m + kTile - 1) / kTile);
  const int64_t i0 = int64_t{blockIdx.x % down} * kTile, j0 = int64_t{blockIdx.x / down} * kTile;
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
  const int64_t rows = (out.m - i0 + 15) / 16, columns = (out.n - j0 + 15) / 16;
  const Part part{static_cast<int>(rows < kSide ? rows : kSide), static_cast<int>(columns < kSide ? columns : kSide)};
  const bool full = part.rows == kSide && part.columns == kSide, idle = i0 + y >= out.m || j0 + x >= out.n;
  Order order;
  for (int64_t k0 = 0; k0 < out.k; k0 += kStep) {
    __syncthreads();
    load_a(args, i0, k0, a);
    load_b(args, j0, k0, b);
    __syncthreads();
    if (idle) continue;
    const int depth = static_cast<int>(out.k - k0 < kStep ? out.k - k0 : kStep);
    for (int k = 0; k < depth; ++k) {
      float row[kSide], column[kSide];
      BITGRAD_UNROLL
      for (int r = 0; r < kSide; ++r) {
        row[r] = a[k][y + 16 * r];
        column[r] = b[k][x + 16 * r];
      }
      if (full)
        order.add(args, {kSide, kSide}, row, column, k0 + k);
      else
        order.add(args, part, row, column, k0 + k);
    }
  }
  BITGRAD_UNROLL
  for (int r = 0; r < kSide; ++r) {
    BITGRAD_UNROLL
    for (int c = 0; c < kSide; ++c) {
      const int64_t i = i0 + y + 16 * r, j = j0 + x + 16 * c;
      if (i >= out.m || j >= out.n) continue;
      const float sum = order.sum[r][c];
      store_value(out, i, j, args.fold == FoldForm::kOntoSum ? sum * args.b.scale.scale[param_at(args.b, j, 0)] : sum);
    }
  }
}

}  // namespace

BITGRAD_GLOBAL void gemm_f32_chain512_simt_kernel(FloatArgs args) { run_tile<Chain>(args); }
BITGRAD_GLOBAL void gemm_f32_table_simt_kernel(FloatArgs args) { run_tile<Table>(args); }

}  // namespace bitgrad::cuda::gemm
