// gemm_f32_onednn, gemm_bf16_onednn: plain fp32 and bf16 products by oneDNN, one thread per block of C. The summation
// order is oneDNN's own.
#include "bitgrad/base/cpu.h"
#include "kernels/gemm/floats/library_blocks.h"
#include "kernels/gemm/floats/onednn_adapter.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

using namespace gemm_detail;

// oneDNN adds the bias before its rounding; the old C is added in fp32 afterwards.
bool plain_output(const GemmArgs& args) { return args.k > 0 && !(args.accumulate && args.bias != nullptr); }

void run(const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  const bool bf16_in = args.a.dtype == dtypes::bf16, bf16_out = args.c_dtype == dtypes::bf16;
  const int64_t in_bytes = bf16_in ? 2 : 4, out_bytes = bf16_out ? 2 : 4;
  const int64_t lda = args.a.stride / in_bytes, ldb = args.b.stride / in_bytes;
  for_library_blocks(args, [&](int64_t i0, int64_t rows, int64_t j0, int64_t columns) {
    const onednn::MatmulSpec spec{rows,
                                  columns,
                                  args.k,
                                  args.a.k_major ? 1 : lda,
                                  args.a.k_major ? lda : 1,
                                  args.b.k_major ? ldb : 1,
                                  args.b.k_major ? 1 : ldb,
                                  args.ldc,
                                  bf16_in,
                                  bf16_out,
                                  args.bias != nullptr,
                                  args.accumulate};
    onednn::matmul(spec, free_start(args.a, i0), free_start(args.b, j0),
                   args.bias == nullptr ? nullptr : args.bias + j0,
                   static_cast<char*>(args.c) + (i0 * args.ldc + j0) * out_bytes);
  });
}

// Measured on a Sapphire Rapids core with oneDNN 2.6.3: a fixed cost, the operands, and `rate` multiply-adds per
// nanosecond.
double cost(const GemmArgs& args, double rate) {
  return 1200.0 + 0.12 * static_cast<double>(args.k) * static_cast<double>(args.m + args.n) +
         multiply_adds(args) / rate;
}
// The rate under the current ISA limit.
double by_isa(double avx512, double avx2, double scalar) {
  return (cpu_isa() & isa::kAvx512) != 0 ? avx512 : ((cpu_isa() & isa::kAvx2) != 0 ? avx2 : scalar);
}

}  // namespace

bool gemm_f32_onednn_supports(const GemmArgs& args) {
  return plain_operands(args, dtypes::fp32) && args.c_dtype == dtypes::fp32 && plain_output(args);
}
double gemm_f32_onednn_cost(const GemmArgs& args) { return cost(args, by_isa(85, 42, 15)); }
void gemm_f32_onednn(const GemmArgs& args) { run(args); }

bool gemm_bf16_onednn_supports(const GemmArgs& args) {
  if (!plain_operands(args, dtypes::bf16) || !plain_output(args) || (cpu_isa() & isa::kAvx512) == 0) return false;
  if (args.c_dtype == dtypes::bf16) return !args.accumulate && onednn::has_bf16();
  return args.c_dtype == dtypes::fp32 && onednn::has_bf16();
}
// Without bf16 instructions oneDNN emulates them: 16 multiply-adds per nanosecond with ONEDNN_MAX_CPU_ISA=AVX512_CORE.
double gemm_bf16_onednn_cost(const GemmArgs& args) { return cost(args, (cpu_isa() & isa::kAvx512Bf16) != 0 ? 51 : 16); }
void gemm_bf16_onednn(const GemmArgs& args) { run(args); }

}  // namespace bitgrad::kernels::gemm_impl
