#include "kernels/gemm/floats/chain512_vnni64.h"

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int kMostPanelRows = 4;
constexpr int64_t kChunkOfCodes = int64_t{1} << 18;  // of B; hide the cost of a parallel loop

// Columns [j0, j0 + columns) of a chunk, all rows.
class PanelColumns {
 public:
  PanelColumns(const GemmArgs& args, const ChainPanelKernel& kernel, const float* a)
      : args_(args),
        kernel_(kernel),
        a_(a),
        groups_(groups_along_k(args)),
        memory_(4 * groups_ * kPanelColumns * static_cast<int64_t>(sizeof(float))) {
    scale_ = memory_.as<float>();
    zero_ = scale_ + groups_ * kPanelColumns;
    offset_ = zero_ + groups_ * kPanelColumns;
    codes_ = reinterpret_cast<int32_t*>(offset_ + groups_ * kPanelColumns);
  }

  // Columns from j on, at most 64.
  void run(int64_t j) {
    const DType dtype = args_.b.dtype;
    const int bits = dtype.bits(), fields = vnni_fields(bits);
    const int64_t columns = std::min<int64_t>(kPanelColumns, args_.n - j);
    ChainPanelTile tile{};
    load_params(j, columns, tile);
    tile.a_step = tile.k = args_.k;
    tile.b = static_cast<const uint8_t*>(args_.b.data) + vnni_group_start(bits, j / kPanelRows, args_.k);
    tile.panels = static_cast<int>(vnni_group_panels(j / kPanelRows, args_.n));
    tile.steps = groups_ == 1 ? vnni_steps(bits, args_.k) : args_.b.scale.col_group / (4 * fields);
    tile.factor = dtype.kind() == DTypeKind::kSign ? 2.0f : 1.0f;
    tile.lowest = dtype.kind() == DTypeKind::kSign  ? -1.0f
                  : dtype.kind() == DTypeKind::kInt ? -static_cast<float>(1 << (bits - 1))
                                                    : 0.0f;
    tile.at_most_one = dtype == dtypes::ternary || bits == 1;
    alignas(64) float c[kMostPanelRows * kPanelColumns];
    tile.c = c;
    for (int64_t i = 0; i < args_.m;) {
      // 3 rows are 2 and 1: tiles exist for powers of 2.
      int64_t rows = std::min<int64_t>(kernel_.rows, args_.m - i);
      if (rows == 3) rows = 2;
      tile.a = a_ + i * args_.k;
      kernel_.tile(static_cast<int>(rows), bits, tile);
      for (int64_t r = 0; r < rows; ++r) finish_row(args_, i + r, j, columns, c + r * kPanelColumns);
      i += rows;
    }
  }

 private:
  void load_params(int64_t j, int64_t columns, ChainPanelTile& tile) {
    const PanelScales scales = panel_scales(args_, j, columns, scale_, kernel_.panel);
    tile.scale = scales.floats;
    tile.halves = scales.halves;
    if (args_.b.scale.zero != nullptr) {
      put_panel_params(args_, j, columns, args_.b.scale.zero, codes_);
      for (int64_t i = 0; i < groups_ * kPanelColumns; ++i) zero_[i] = static_cast<float>(codes_[i]);
      tile.zero = zero_;
    }
    if (args_.b.scale.offset == nullptr) return;
    put_panel_params(args_, j, columns, args_.b.scale.offset, offset_);
    tile.offset = offset_;
  }

  const GemmArgs& args_;
  const ChainPanelKernel& kernel_;
  const float* a_;
  const int64_t groups_;
  const Workspace memory_;
  float *scale_, *zero_, *offset_;
  int32_t* codes_;
};

}  // namespace

bool chain512_vnni64_supports(const GemmArgs& args) {
  if (!has_small_integer_codes(args.b.dtype) || args.b.k_major || args.a.k_major || args.a.dtype == dtypes::fp64 ||
      args.k == 0 || args.row_minus != nullptr || args.fold_b_scale || gemm_is_integer(args))
    return false;
  const int64_t line = 4 * vnni_fields(args.b.dtype.bits());
  return (groups_along_k(args) == 1 || args.b.scale.col_group % line == 0) &&
         (args.c_dtype == dtypes::fp32 || args.c_dtype == dtypes::bf16);
}

void chain512_vnni64_gemm(const GemmArgs& args, const ChainPanelKernel& kernel) {
  if (args.m == 0 || args.n == 0) return;
  const Workspace memory(args.m * args.k * static_cast<int64_t>(sizeof(float)));
  auto* const a = memory.as<float>();
  for (int64_t i = 0; i < args.m; ++i) read_values(args.a, i, 0, args.k, false, a + i * args.k);
  const int64_t unit = std::max<int64_t>(1, kChunkOfCodes / (args.k * kPanelColumns));
  parallel_ranges(ceil_div(args.n, kPanelColumns), unit, [&](int64_t begin, int64_t end) {
    PanelColumns columns(args, kernel, a);
    for (int64_t i = begin; i < end; ++i) columns.run(i * kPanelColumns);
  });
}

double chain512_vnni64_cost(const GemmArgs& args, const ChainPanelKernel& kernel) {
  constexpr double kCall = 300, kByte = 0.05, kParam = 0.4, kExpand = 0.2, kOutput = 0.1;
  const double m = static_cast<double>(args.m), n = static_cast<double>(round_up(args.n, kPanelRows));
  const double k = static_cast<double>(args.k);
  const double passes = static_cast<double>(ceil_div(args.m, kernel.rows));
  const double bytes = n * k / vnni_fields(args.b.dtype.bits());
  return kCall + std::max(passes * n * k * kernel.open_ns + m * n * k * kernel.mac_ns, kByte * bytes) +
         static_cast<double>(groups_along_k(args)) * n * kParam + kExpand * m * k + kOutput * m * n;
}

}  // namespace bitgrad::kernels::gemm_detail
