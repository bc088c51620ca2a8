// The rows of the tile unit as every machine can run them: around emulated tiles, in portable code and, where the
// machine has them, with AVX-512, VBMI and GFNI. The machine's own rows come too where it has AMX.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "emulation/amx/isa.h"
#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::test {

template <const kernels::gemm_detail::AmxIsa& (*kIsa)()>
struct EmulatedRun {
  static void codes(const kernels::GemmArgs& args) { kernels::gemm_detail::amx_int_gemm(args, kIsa()); }
  static void halves(const kernels::GemmArgs& args) { kernels::gemm_detail::amx_bf16_gemm(args, kIsa()); }
  static void digits3(const kernels::GemmArgs& args) { kernels::gemm_detail::amx_digits_gemm(args, 3, kIsa()); }
  static void digits2(const kernels::GemmArgs& args) { kernels::gemm_detail::amx_digits_gemm(args, 2, kIsa()); }

  static kernels::GemmKernel of(kernels::GemmKernel kernel) {
    const bool free = kernel.order == SumOrder::kFree;
    kernel.run = kernel.order == SumOrder::kDigits3   ? &digits3
                 : kernel.order == SumOrder::kDigits2 ? &digits2
                                                      : (free ? &halves : &codes);
    kernel.needs = isa::kScalar;
    return kernel;
  }
};

inline bool has_vector_fill() {
  return (cpu_isa() & isa::kAvx512) != 0 && (cpu_isa() & isa::kAvx512Vbmi) != 0 && __builtin_cpu_supports("gfni");
}

// The runnable forms of all rows of `order` that need AMX.
inline std::vector<kernels::GemmKernel> amx_kernels(SumOrder order) {
  std::vector<kernels::GemmKernel> rows;
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    if ((kernel.needs & isa::kAmx) == 0 || kernel.order != order) continue;
    rows.push_back(EmulatedRun<&kernels::gemm_detail::amx_emulated>::of(kernel));
    if (has_vector_fill()) rows.push_back(EmulatedRun<&kernels::gemm_detail::amx_emulated_avx512>::of(kernel));
    if ((kernel.needs & ~cpu_isa()) == 0) rows.push_back(kernel);
  }
  return rows;
}

// Puts an operand [free, k] into a layout, then makes noise of what holds no code.
inline void derive_noisy(kernels::GemmOperand& x, Layout layout, int64_t free, int64_t k, std::vector<uint64_t>& out,
                         uint64_t (*noise)()) {
  if (layout == layouts::canonical) return;
  const LayoutInfo& info = layout.info();
  const int64_t bytes = info.bytes(x.dtype, free, k);
  out.assign(static_cast<size_t>(bytes / 8), 0);  // nothing behind the last word
  info.pack(x.dtype, free, k, x.data, x.stride, out.data());
  auto* words = reinterpret_cast<uint32_t*>(out.data());
  const int bits = x.dtype.bits();
  const int64_t per_lane = layout == layouts::panels16 ? panel_words(k) : tile_words(bits, k);
  for (int64_t f = 0; f < panel_count(free) * kPanelRows; ++f) {
    for (int64_t w = 0; w < per_lane; ++w) {
      uint32_t& word = words[(f / kPanelRows * per_lane + w) * kPanelRows + f % kPanelRows];
      const int64_t used = f >= free ? 0 : k * bits - 32 * w;
      if (used <= 0) word = static_cast<uint32_t>(noise());
      if (used > 0 && used < 32) word |= static_cast<uint32_t>(noise()) << used;
    }
  }
  x.data = out.data();
  x.layout = layout;
}

}  // namespace bitgrad::test
