// Groups of B in layout vnni64 in plain C++: runs on every machine and is the reference for the other kernels.
#include "kernels/gemm/bytes/s8_vnni64_groups.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// sum a u modulo 2^32 over `steps` lines of one column.
uint32_t dot_of_lines(const int8_t* a, const uint8_t* b, int64_t b_step, int64_t steps, int fields) {
  const int width = 8 / fields, mask = (1 << width) - 1;
  uint32_t sum = 0;
  for (int64_t s = 0; s < steps; ++s, b += b_step)
    for (int f = 0; f < fields; ++f, a += 4)
      for (int i = 0; i < 4; ++i) sum += static_cast<uint32_t>(a[i] * ((b[i] >> (f * width)) & mask));
  return sum;
}

void groups_tile(int rows, int bits, const S8GroupsTile& t) {
  const int fields = vnni_fields(bits);
  const int64_t b_step = int64_t{64} * t.panels;
  for (int r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < t.panels * kPanelRows; ++j) {
      const int8_t* a = t.a + r * t.a_step;
      const uint8_t* b = t.b + j / kPanelRows * 64 + j % kPanelRows * 4;
      float sum = 0;
      for (GroupAt group{t, j}; group.g < t.groups; group.next()) {
        const int64_t steps = group.steps(), at = group.params, of_group = r * t.groups + group.g;
        const int32_t codes = t.sums[of_group];
        const uint32_t start = t.column_by == nullptr
                                   ? static_cast<uint32_t>(t.start[of_group])
                                   : static_cast<uint32_t>(codes) * static_cast<uint32_t>(t.column_by[at]);
        const auto acc = static_cast<int32_t>((dot_of_lines(a, b, b_step, steps, fields) << t.shift) + start);
        const float of_row = t.row_scale == nullptr ? 1.0f : t.row_scale[of_group];
        const float scaled = static_cast<float>(acc) * (t.scale[at] * of_row);
        sum = sum + (t.offset == nullptr ? scaled : scaled + static_cast<float>(codes) * (t.offset[at] * of_row));
        a += steps * 4 * fields;
        b += steps * b_step;
      }
      t.t[r * kPanelColumns + j] = sum;
    }
  }
}

int32_t sum_of_row(const int8_t* row, int64_t count) {
  int32_t sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += row[k];
  return sum;
}

constexpr S8GroupsKernel kGroupsKernel{1, &groups_tile, &sum_of_row, {}, 1, 1};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_vnni64_groups_scalar, gemm_detail::s8_vnni64_groups_supports(args),
                    gemm_detail::kReferenceCost + gemm_detail::s8_vnni64_groups_cost(args, gemm_detail::kGroupsKernel),
                    gemm_detail::s8_vnni64_groups_gemm(args, gemm_detail::kGroupsKernel))

}  // namespace bitgrad::kernels::gemm_impl
