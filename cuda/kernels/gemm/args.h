// What the host side of every product on the device needs: GemmArgs as the arguments of device kernels, costs, and the
// list of kernels.
#pragma once

#include <algorithm>
#include <span>

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/output.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::cuda::gemm {

Operand operand_of(const GemmOperand& x);
Output output_of(const GemmArgs& args);
Levels levels_of(DType dtype);

// Whether the device can store an exact product as c_dtype: same as the CPU, except fp64.
bool integer_output(const GemmArgs& args);

// Whether this is a single exact sum over codes of at most 8 bits (no groups), stored in an output the device supports.
bool exact_sum(const GemmArgs& args);
// Whether sums over k of products of codes of at most these magnitudes fit in int32.
bool fits_int32(const GemmArgs& args, int64_t most_a, int64_t most_b);
// Weight of a plane's bit in the code value. For signs it is 2; the value is 2 * bit - 1.
int32_t plane_weight(DType dtype, int plane);

// Largest magnitude of the codes of an integer dtype of at most 8 bits.
int64_t largest_code(DType dtype);

// Estimated nanoseconds of products on the device. The constants are those of an H100 where docs/results/gpu_h100.md
// has a measurement (not: simt kernels of codes, split-k). They only rank the kernels; no result depends on them.
inline constexpr double kLaunchNs = 3000, kMultiprocessors = 132, kBytesPerNs = 3500;

// Cost of a product in tiles of tile_m x tile_n, one per multiprocessor at a time, at `macs_per_ns` for the whole
// device.
inline double tiled_cost(const GemmArgs& args, int64_t tile_m, int64_t tile_n, double macs_per_ns) {
  const double tiles = static_cast<double>(gemm_detail::ceil_div(args.m, tile_m)) *
                       static_cast<double>(gemm_detail::ceil_div(args.n, tile_n));
  const double waves = std::max(1.0, tiles <= kMultiprocessors ? 1.0 : tiles / kMultiprocessors);
  const double tile = static_cast<double>(tile_m * tile_n) * static_cast<double>(args.k);
  return kLaunchNs + waves * tile * kMultiprocessors / macs_per_ns;
}
// Bytes of the operand, each read from memory once.
inline double operand_bytes(const GemmOperand& x, int64_t free, int64_t k) {
  return static_cast<double>(free) * static_cast<double>(k) * x.dtype.bits() / 8;
}

}  // namespace bitgrad::cuda::gemm

// ---- the functions of every kernel in kernels.inc: NAME_supports, NAME_cost and NAME ----
namespace bitgrad::cuda {

std::span<const GemmKernel> cuda_gemm_kernels();

namespace gemm_impl {

#define BITGRAD_CUDA_GEMM_KERNEL(name, ...) \
  bool name##_supports(const GemmArgs&);    \
  double name##_cost(const GemmArgs&);      \
  void name(const GemmArgs&);
#include "cuda/kernels/gemm/kernels.inc"
#undef BITGRAD_CUDA_GEMM_KERNEL

}  // namespace gemm_impl
}  // namespace bitgrad::cuda
