#include "kernels/gemm/bytes/s8_vnni64_plan.h"

#include <algorithm>

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kMaxRowsExpanded = 128;                          // of a block of C
constexpr int64_t kMaxColumnsWithSums = 1024;                      // of a block of C whose sums are kept between slabs
constexpr int64_t kSlab = 5120, kSlabWithSums = 2048;              // k for which the rows of a block stay in L2
constexpr int64_t kDepth = 5120;                                   // k per block of B: 6 rows of A fit beside it in L1
constexpr int64_t kDepthOpened = 2048, kDepthOpenedFewRows = 512;  // the same for unpacked codes
constexpr int64_t kFewRows = 24, kDepthFewRows = 512;              // below this B is used as fast as it can be read
constexpr int64_t kChunkMultiplyAdds = int64_t{1} << 24;           // hides the cost of a parallel loop
constexpr int64_t kColumnsExpanded = 512;                          // number that shares one expansion of A

// Splits `total` into equal pieces of at most `upper`, rounded up to 32 codes, which fill a line of B at any width.
int64_t even_piece(int64_t total, int64_t upper) {
  return std::max<int64_t>(32, round_up(ceil_div(total, std::max<int64_t>(1, ceil_div(total, upper))), 32));
}

bool reads_in_place(const GemmArgs& args) {
  return args.a.dtype.kind() == DTypeKind::kInt && args.a.dtype.bits() == 8 && !args.a.k_major && args.k % 4 == 0;
}

// Columns per block of C: enough work for a chunk of a parallel loop.
int64_t block_columns(const GemmArgs& args, int64_t rows, bool in_place, bool several, int bits) {
  const int64_t k = std::max<int64_t>(1, args.k);
  const int64_t by_work = ceil_div(kChunkMultiplyAdds, rows * k), by_bytes = ceil_div(kS8PanelChunkBytes * 8, k * bits);
  int64_t columns = round_up(std::min(by_work, by_bytes), kS8PanelColumns);
  if (!in_place) columns = std::max(columns, kColumnsExpanded);
  if (several) columns = std::min(columns, kMaxColumnsWithSums);
  return std::min(columns, round_up(args.n, kS8PanelColumns));
}

}  // namespace

S8PanelPlan::S8PanelPlan(const GemmArgs& args_in, const S8PanelKernel& kernel_in)
    : args(args_in),
      kernel(kernel_in),
      bits(args.b.dtype.bits()),
      fields(vnni_fields(bits)),
      a(byte_range(args.a.dtype)),
      in_place(reads_in_place(args)) {
  const DTypeKind kind = args.b.dtype.kind();
  shift = kind == DTypeKind::kSign ? 1 : 0;
  lowest = kind == DTypeKind::kSign ? -1 : kind == DTypeKind::kInt ? -(int64_t{1} << (bits - 1)) : 0;
  max = (1 << bits) - 1;
  several = args.k > kSlab;
  slab = even_piece(args.k, !several ? kSlab : in_place ? kDepth : kSlabWithSums);
  rows = ceil_div(args.m, ceil_div(args.m, in_place && !several ? kS8PanelMaxRows : kMaxRowsExpanded));
  opens = fields != 1 && args.m > kernel.few_rows;
  depth = even_piece(slab, opens ? (rows <= kMaxRowsExpanded ? kDepthOpenedFewRows : kDepthOpened)
                           : fields == 1 && args.m <= kFewRows ? kDepthFewRows
                                                               : kDepth);
  columns = block_columns(args, rows, in_place, several, bits);
  direct = kernel.direct && args.c_dtype == dtypes::fp32;
  panels = panel_count(args.n);
  steps = vnni_steps(bits, args.k);
  beta_varies = args.b.scale.zero != nullptr && !args.b.scale.per_tensor();
  alphas = args.k > 0 && (a.shift != 0 || args.a.scale.zero != nullptr);
  column_sums = static_cast<const int32_t*>(args.b.data) + panels * steps * 16;
}

// Measured on a Sapphire Rapids core.
double s8_panels_cost(const GemmArgs& args, const S8PanelKernel& kernel) {
  constexpr double kCall = 400, kOutputDirect = 0.03, kOutput = 0.2, kExpand = 0.06, kByte = 0.03;
  const int fields = vnni_fields(args.b.dtype.bits());
  const bool in_place = reads_in_place(args);
  const double m = static_cast<double>(args.m), n = static_cast<double>(round_up(args.n, kPanelRows));
  const double k = static_cast<double>(round_up(args.k, 4)), work = m * n * k;
  const double blocks = static_cast<double>(ceil_div(args.m, in_place ? kS8PanelMaxRows : kMaxRowsExpanded));
  const double opened = fields == 1 || args.m <= kernel.few_rows ? 0 : kernel.rates.open * n * k * blocks;
  const double expanded = in_place ? 0 : kExpand * m * k * static_cast<double>(ceil_div(args.n, kColumnsExpanded));
  const double output = (kernel.direct && args.c_dtype == dtypes::fp32 ? kOutputDirect : kOutput) * m * n;
  return kCall + std::max(work / kernel.rates.gmacs[args.b.dtype.bits() - 1], kByte * n * k / fields) + opened +
         expanded + output;
}

}  // namespace bitgrad::kernels::gemm_detail
