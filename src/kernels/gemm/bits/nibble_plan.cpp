#include "kernels/gemm/bits/nibble_plan.h"

#include "kernels/gemm/bits/popcount.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kMaxK = 32767;    // so that two counts per k fit in 16 bits
constexpr int64_t kMaxRows = 1024;  // per chunk: its counts stay in L2

NibblePlan plan_with(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot, bool tables_of_b) {
  NibblePlan p{};
  p.tables_of_b = tables_of_b;
  p.ternary_tables = tables_of_b ? dot.ternary_b : dot.ternary_a;
  p.lanes = tables_of_b ? args.n : args.m;
  p.rows = tables_of_b ? args.m : args.n;
  p.planes = (tables_of_b ? dot.ternary_a : dot.ternary_b) ? 2 : 1;
  p.groups = ceil_div(args.k, kNibbleGroup);
  p.blocks = ceil_div(p.lanes, kernel.lanes);
  p.row_chunks = ceil_div(p.rows, kMaxRows);
  p.chunk_rows = p.row_chunks == 0 ? 0 : round_up(ceil_div(p.rows, p.row_chunks), kNibbleTransposed);
  // Measured on a Sapphire Rapids core at 3 GHz.
  constexpr double kCall = 600, kWord = 0.6, kSignWord = 1.7, kTernaryTables = 2.4, kOutput = 0.3;
  const double blocks = static_cast<double>(p.blocks), rows = static_cast<double>(p.rows);
  const double groups = static_cast<double>(p.groups), planes = p.planes, width = static_cast<double>(kernel.lanes);
  const double tables = blocks * static_cast<double>(p.row_chunks) * groups * (p.ternary_tables ? kTernaryTables : 1);
  p.ns = kCall + blocks * rows * groups * planes * width * kNibbleGroup / kernel.gmacs + tables * kernel.ns_of_group +
         rows * groups * planes * (p.planes == 2 ? kSignWord : kWord) + blocks * width * rows * kOutput;
  return p;
}

}  // namespace

NibblePlan nibble_plan(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  const NibblePlan a = plan_with(args, kernel, dot, false), b = plan_with(args, kernel, dot, true);
  return a.ns < b.ns ? a : b;
}

bool nibble_supports(const GemmArgs& args, NibbleDot dot) {
  const bool pair = !dot.ternary_a   ? popcount_supports_b1_b1(args)
                    : !dot.ternary_b ? popcount_supports_t_b1(args)
                                     : popcount_supports_t_t(args);
  return pair && args.k <= kMaxK;
}

double nibble_cost(const GemmArgs& args, const NibbleKernel& kernel, NibbleDot dot) {
  return nibble_plan(args, kernel, dot).ns;
}

}  // namespace bitgrad::kernels::gemm_detail
