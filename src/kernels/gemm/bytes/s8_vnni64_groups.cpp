// The loops of s8_vnni64_groups.h. A chunk is a block of rows and a run of groups of 64 columns. It reads A in place,
// or expands its rows once, and makes tables of them for a kernel that reads those; of each 64 columns it orders the
// scales, which are a few KiB, and walks all rows.
#include "kernels/gemm/bytes/s8_vnni64_groups.h"

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/bytes/s8_vnni64.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kGroupsMostRows = 96, kMostBytesOfRows = int64_t{1} << 18;  // of a block; they stay in L2
constexpr int64_t kGroupsMultiplyAdds = int64_t{1} << 22;                     // hides the cost of a parallel loop

// All that is the same for all chunks.
struct GroupsPlan {
  const GemmArgs& args;
  const S8GroupsKernel& kernel;
  int bits, fields, shift, max;
  int64_t lowest;
  int64_t group, groups, panels, steps;  // codes of a group; groups, panels; lines of a panel
  int64_t params, each;                  // groups of B's parameters; groups that share one of them
  int64_t rows, columns;                 // of a chunk
  bool in_place, blocks;                 // blocks: A has groups, too

  GroupsPlan(const GemmArgs& args_in, const S8GroupsKernel& kernel_in)
      : args(args_in),
        kernel(kernel_in),
        bits(args.b.dtype.bits()),
        fields(vnni_fields(bits)),
        shift(args.b.dtype.kind() == DTypeKind::kSign ? 1 : 0),
        max((1 << bits) - 1),
        lowest(shift == 1                               ? -1
               : args.b.dtype.kind() == DTypeKind::kInt ? -(int64_t{1} << (bits - 1))
                                                        : 0),
        group(exact_depth(args)),
        groups(ceil_div(args.k, group)),
        panels(panel_count(args.n)),
        steps(vnni_steps(bits, args.k)),
        params(groups_along_k(args)),
        each(params == 1 ? groups : group_along_k(args.b) / group),
        in_place(args.a.dtype.bits() == 8 && args.k % (4 * fields) == 0),
        blocks(has_blocks(args.a)) {
    const int64_t most =
        std::clamp<int64_t>(kMostBytesOfRows / (row_bytes() + table_bytes()), kernel.rows, kGroupsMostRows);
    rows = ceil_div(args.m, ceil_div(args.m, most));
    columns = round_up(ceil_div(kGroupsMultiplyAdds, rows * args.k), kPanelColumns);
  }
  int64_t row_bytes() const { return steps * 4 * fields; }
  int64_t table_bytes() const { return steps * kernel.table_bytes; }  // of a row
};

int32_t low_word(int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(x))); }

class GroupsChunk {
 public:
  GroupsChunk(const GroupsPlan& plan, int64_t i0, int64_t j0)
      : plan_(plan),
        args_(plan.args),
        i0_(i0),
        j0_(j0),
        rows_(std::min(plan.rows, args_.m - i0)),
        columns_(std::min(plan.columns, args_.n - j0)),
        memory_(3 * sum_bytes() + 3 * params_bytes() + plan.rows * plan.table_bytes() +
                (plan.in_place ? 0 : plan.rows * plan.row_bytes())) {
    char* p = memory_.as<char>();
    sums_ = reinterpret_cast<int32_t*>(p);
    start_ = reinterpret_cast<int32_t*>(p += sum_bytes());
    row_scale_ = reinterpret_cast<float*>(p += sum_bytes());
    scale_ = reinterpret_cast<float*>(p += sum_bytes());
    offset_ = reinterpret_cast<float*>(p += params_bytes());
    column_by_ = reinterpret_cast<int32_t*>(p += params_bytes());
    tables_ = reinterpret_cast<uint8_t*>(p += params_bytes());
    a_ = reinterpret_cast<int8_t*>(p + plan.rows * plan.table_bytes());
  }

  void run() {
    load_a();
    for (int64_t j = j0_; j < j0_ + columns_; j += kPanelColumns) multiply(j);
  }

 private:
  int64_t sum_bytes() const { return round_up(plan_.rows * plan_.groups * 4, 64); }
  int64_t params_bytes() const { return plan_.params * kPanelColumns * 4; }

  void load_a() {
    a_step_ = plan_.in_place ? args_.a.stride : plan_.row_bytes();
    a_at_ = plan_.in_place ? reinterpret_cast<const int8_t*>(stored_row(args_.a, i0_)) : a_;
    for (int64_t s = 0; !plan_.in_place && s < rows_; s += kStrip)
      expand_strip(args_.a, i0_ + s, std::min(kStrip, rows_ - s), 0, args_.k, a_ + s * a_step_, a_step_);
    for (int64_t i = 0; i < rows_; ++i) {
      if (plan_.kernel.make_tables != nullptr)
        plan_.kernel.make_tables(a_at_ + i * a_step_, plan_.steps, tables_ + i * plan_.table_bytes());
      for (int64_t g = 0; g < plan_.groups; ++g) {
        const int64_t k0 = g * plan_.group;
        const int32_t sum = plan_.kernel.row_sum(a_at_ + i * a_step_ + k0, std::min(plan_.group, args_.k - k0));
        sums_[i * plan_.groups + g] = sum;
        start_[i * plan_.groups + g] = low_word(plan_.lowest * sum);
        if (plan_.blocks) row_scale_[i * plan_.groups + g] = args_.a.scale.scale[param_at(args_.a, i0_ + i, k0)];
      }
    }
  }

  void load_params(int64_t j, int64_t columns, S8GroupsTile& tile) {
    const PanelScales scales = panel_scales(args_, j, columns, scale_, plan_.kernel.panel);
    tile.scale = scales.floats;
    tile.halves = scales.halves;
    if (args_.b.scale.offset != nullptr) {
      put_panel_params(args_, j, columns, args_.b.scale.offset, offset_);
      tile.offset = offset_;
    }
    if (args_.b.scale.zero == nullptr) return;
    put_panel_params(args_, j, columns, args_.b.scale.zero, column_by_);
    for (int64_t i = 0; i < plan_.params * kPanelColumns; ++i) column_by_[i] = low_word(plan_.lowest - column_by_[i]);
    tile.column_by = column_by_;
  }

  // Columns from j on.
  void multiply(int64_t j) {
    S8GroupsTile tile{};
    const int64_t columns = std::min<int64_t>(kPanelColumns, args_.n - j);
    load_params(j, columns, tile);
    const int64_t codes = 4 * plan_.fields;
    tile.a_step = a_step_;
    tile.b = static_cast<const uint8_t*>(args_.b.data) + vnni_group_start(plan_.bits, j / kPanelRows, args_.k);
    tile.panels = static_cast<int>(vnni_group_panels(j / kPanelRows, args_.n));
    tile.groups = plan_.groups;
    tile.steps = plan_.group / codes;
    tile.last_steps = plan_.steps - (plan_.groups - 1) * tile.steps;
    tile.each = plan_.each;
    tile.max = plan_.max;
    tile.shift = plan_.shift;
    alignas(64) float t[kS8GroupsRows * kPanelColumns];
    tile.t = t;
    const int64_t tiles = ceil_div(rows_, plan_.kernel.rows);
    for (int64_t q = 0, i = 0; q < tiles; ++q) {
      const int64_t rows = ceil_div(rows_ - i, tiles - q);
      tile.a = a_at_ + i * a_step_;
      tile.tables = plan_.kernel.make_tables == nullptr ? nullptr : tables_ + i * plan_.table_bytes();
      tile.start = tile.column_by == nullptr ? start_ + i * plan_.groups : nullptr;
      tile.sums = sums_ + i * plan_.groups;
      tile.row_scale = plan_.blocks ? row_scale_ + i * plan_.groups : nullptr;
      plan_.kernel.tile(static_cast<int>(rows), plan_.bits, tile);
      for (int64_t r = 0; r < rows; ++r) finish_groups(args_, i0_ + i + r, j, columns, t + r * kPanelColumns);
      i += rows;
    }
  }

  const GroupsPlan& plan_;
  const GemmArgs& args_;
  const int64_t i0_, j0_, rows_, columns_;
  const Workspace memory_;
  int32_t *sums_, *start_, *column_by_;
  float *row_scale_, *scale_, *offset_;
  uint8_t* tables_;
  int8_t* a_;
  const int8_t* a_at_ = nullptr;
  int64_t a_step_ = 0;
};

// Whether sums fit in int32, those of fields that kernels leave where they are in a byte, too.
bool groups_fit_int32(const GemmArgs& args, const ZeroRange& zb) {
  const int bits = args.b.dtype.bits(), fields = vnni_fields(bits);
  const double depth = static_cast<double>(exact_depth(args)), top = fields <= 2 ? 0 : ((1 << bits) - 1) << 8 / fields;
  return largest_sum(args, exact_depth(args), {}, zb) <= 0x7FFFFFFFp0 && 128 * top * depth <= 0x7FFFFFFFp0;
}

}  // namespace

bool s8_vnni64_groups_supports(const GemmArgs& args) {
  if (!has_small_integer_codes(args.a.dtype) || !has_small_integer_codes(args.b.dtype) || args.a.k_major ||
      args.b.k_major || args.k == 0 || integer_product(args) != IntegerProduct::kGroups)
    return false;
  const int64_t group = exact_depth(args);
  const bool lines = group == args.k || group % (4 * vnni_fields(args.b.dtype.bits())) == 0;
  const bool output = args.c_dtype == dtypes::fp32 || args.c_dtype == dtypes::bf16;
  return lines && output && args.row_minus == nullptr && args.a.scale.zero == nullptr &&
         byte_range(args.a.dtype).shift == 0 && groups_fit_int32(args, {});
}

void s8_vnni64_groups_gemm(const GemmArgs& args, const S8GroupsKernel& kernel) {
  if (args.m == 0 || args.n == 0) return;
  if (!groups_fit_int32(args, zero_range(args.b, args.n, args.k))) return gemm_from_canonical(args);
  const GroupsPlan plan(args, kernel);
  const int64_t column_chunks = ceil_div(args.n, plan.columns);
  parallel_for(ceil_div(args.m, plan.rows) * column_chunks, [&](int64_t i) {
    GroupsChunk(plan, i / column_chunks * plan.rows, i % column_chunks * plan.columns).run();
  });
}

double s8_vnni64_groups_cost(const GemmArgs& args, const S8GroupsKernel& kernel) {
  constexpr double kCall = 400, kByte = 0.05, kParam = 0.4, kExpand = 0.06, kOutput = 0.1;
  const int bits = args.b.dtype.bits(), fields = vnni_fields(bits);
  const double m = static_cast<double>(args.m), n = static_cast<double>(round_up(args.n, kPanelRows));
  const double k = static_cast<double>(args.k), params = static_cast<double>(groups_along_k(args));
  const double groups = static_cast<double>(ceil_div(args.k, exact_depth(args)));  // of either side
  // Tiles of fewer rows open B for fewer products.
  const double rows = std::max(m, std::min(m + 1.0, static_cast<double>(kernel.rows)));
  const bool in_place = args.a.dtype.bits() == 8 && args.k % (4 * fields) == 0;
  double tables = 0;
  if (kernel.make_tables != nullptr && args.m > 0) {
    const GroupsPlan plan(args, kernel);
    tables = kernel.table_ns * m * static_cast<double>(ceil_div(args.n, plan.columns) * plan.steps);
  }
  return kCall + tables + std::max(rows * n * k / kernel.gmacs, kByte * n * k / fields) +
         n * (groups * kernel.group_ns * m + params * kParam) + (in_place ? 0 : kExpand * m * k) + kOutput * m * n;
}

}  // namespace bitgrad::kernels::gemm_detail
