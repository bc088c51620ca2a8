// Small integers in layout vnni64 in plain C++: runs on every machine and is the reference for the other kernels.
#include "kernels/gemm/bytes/s8_vnni64.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

void tile(int rows, int panels, int, const S8PanelTile& t) {
  for (int r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < panels * kPanelRows; ++j) {
      const uint8_t* b = t.b + j / kPanelRows * 64 + j % kPanelRows * 4;
      const int8_t* a = t.a + r * t.a_step;
      int32_t& sum = t.sums[r * kS8PanelColumns + j];
      uint32_t dot = t.first ? 0 : static_cast<uint32_t>(sum);  // modulo 2^32
      for (int64_t u = 0; u < t.units; ++u, a += 4, b += panels * 64)
        dot += static_cast<uint32_t>(a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]);
      sum = static_cast<int32_t>(dot);
    }
  }
}

void open(const uint8_t* in, int64_t steps, int64_t panels, int fields, uint8_t* out) {
  const int width = 8 / fields, mask = (1 << width) - 1;
  for (int64_t s = 0; s < steps; ++s) {
    for (int f = 0; f < fields; ++f, out += 64 * panels) {
      for (int64_t i = 0; i < 64 * panels; ++i)
        out[i] = static_cast<uint8_t>((in[s * 64 * panels + i] >> (f * width)) & mask);
    }
  }
}

int32_t sum_bytes(const int8_t* row, int64_t count) {
  int32_t sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += row[k];
  return sum;
}

constexpr S8PanelKernel kKernel{1, 8, &tile, false, 0, nullptr, &open, &sum_bytes, {{1, 1, 1, 1, 1, 1, 1, 1}, 1}};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_S8_PANEL_KERNEL(gemm_s8_s8_i32_vnni64_scalar, false, kReferenceCost)
BITGRAD_S8_PANEL_KERNEL(gemm_s8_s8_i32_vnni64_t_scalar, true, kReferenceCost)

}  // namespace bitgrad::kernels::gemm_impl
