#include "kernels/gemm/common/panel_params.h"

#include <algorithm>

#include "bitgrad/dtype/bf16.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/panel_scales.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

template <typename T>
void put(const GemmArgs& args, int64_t j0, int64_t columns, const T* values, T* out) {
  const int64_t groups = groups_along_k(args), step = groups == 1 ? 0 : args.b.scale.col_step;
  const T* from[kPanelColumns];
  for (int64_t j = 0; j < kPanelColumns; ++j) from[j] = values + param_at(args.b, j0 + (j < columns ? j : 0), 0);
  // Squares of 16 x 16 keep the lines that are read and written in L1.
  constexpr int64_t kSide = 16;
  for (int64_t j = 0; j < kPanelColumns; j += kSide) {
    for (int64_t g0 = 0; g0 < groups; g0 += kSide) {
      const int64_t end = std::min(g0 + kSide, groups);
      for (int64_t i = j; i < j + kSide; ++i)
        for (int64_t g = g0; g < end; ++g) out[g * kPanelColumns + i] = from[i][g * step];
    }
  }
}

// The scales of 64 columns are a few KiB between which a call reads far more codes: no hardware expects them.
void prefetch_scales(const GemmArgs& args, int64_t j0) {
  const int64_t columns = std::min(kPanelColumns, args.n - j0), groups = groups_along_k(args);
  if (columns <= 0 || args.b.scale.row_step != groups || args.b.scale.row_group != 1) return;
  constexpr int64_t kLine = 64 / sizeof(float);
  const float* from = args.b.scale.scale + param_at(args.b, j0, 0);
  for (int64_t i = 0; i < columns * groups; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

}  // namespace

int64_t groups_along_k(const GemmArgs& args) {
  return has_groups_along_k(args.b) ? std::max<int64_t>(1, ceil_div(args.k, args.b.scale.col_group)) : 1;
}

void put_panel_params(const GemmArgs& args, int64_t j0, int64_t columns, const float* values, float* out) {
  put(args, j0, columns, values, out);
}
void put_panel_params(const GemmArgs& args, int64_t j0, int64_t columns, const int32_t* values, int32_t* out) {
  put(args, j0, columns, values, out);
}

namespace {

void put_scales(const GemmArgs& args, int64_t j0, int64_t columns, float* out, Transpose transpose16) {
  const int64_t groups = groups_along_k(args);
  const float* const scale = args.b.scale.scale;
  if (scale == nullptr) {
    std::fill(out, out + groups * kPanelColumns, 1.0f);
  } else if (transpose16 == nullptr || (groups > 1 && args.b.scale.col_step != 1)) {
    put(args, j0, columns, scale, out);
  } else {
    for (int64_t panel = 0; panel < kPanelColumns; panel += kPanelRows) {
      const float* rows[kPanelRows];
      for (int64_t j = 0; j < kPanelRows; ++j)
        rows[j] = scale + param_at(args.b, j0 + (panel + j < columns ? panel + j : 0), 0);
      transpose16(rows, groups, kPanelColumns, out + panel);
    }
    prefetch_scales(args, j0 + kPanelColumns);
  }
}

}  // namespace

PanelScales panel_scales(const GemmArgs& args, int64_t j0, int64_t columns, float* memory, const PanelLoops& loops) {
  const int64_t groups = groups_along_k(args), count = groups * kPanelColumns, at = j0 / kPanelColumns * count;
  if (args.b.panel_scales == nullptr) {
    put_scales(args, j0, columns, memory, loops.transpose16);
    return {memory};
  }
  if (args.b.panel_dtype == dtypes::fp32) return {static_cast<const float*>(args.b.panel_scales) + at};
  const auto* const halves = static_cast<const uint16_t*>(args.b.panel_scales) + at;
  if (loops.halves) return {nullptr, halves};
  if (loops.widen != nullptr)
    loops.widen(halves, count, memory);
  else
    std::transform(halves, halves + count, memory, fp16_to_float);
  return {memory};
}

}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels {

int64_t panel_scale_count(int64_t rows, int64_t groups) {
  return gemm_detail::round_up(rows, gemm_detail::kPanelColumns) * groups;
}

void order_panel_scales(const ScaleMap& scale, int64_t rows, int64_t cols, float* out) {
  GemmArgs args;
  args.n = rows;
  args.k = cols;
  args.b.scale = scale;
  const int64_t step = gemm_detail::groups_along_k(args) * gemm_detail::kPanelColumns;
  for (int64_t j = 0; j < rows; j += gemm_detail::kPanelColumns, out += step)
    gemm_detail::put_panel_params(args, j, std::min(gemm_detail::kPanelColumns, rows - j), scale.scale, out);
}

}  // namespace bitgrad::kernels
