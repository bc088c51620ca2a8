// Kernels that call cuBLASLt: fp32 and bf16 in the library's own summation order, int8 exactly.
#include "bitgrad/base/memory.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/library/cublaslt.h"
#include "cuda/kernels/gemm/library/cublaslt_codes.h"
#include "cuda/kernels/gemm/reference/reference.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda::gemm {
namespace {

bool bare_floats(const GemmArgs& args, DType dtype) {
  return args.a.dtype == dtype && args.b.dtype == dtype && args.a.scale.trivial() && args.b.scale.trivial() &&
         args.row_minus == nullptr && args.m > 0 && args.n > 0 && args.k > 0;
}
LtProduct product_of(const GemmArgs& args, LtType in, LtType out) {
  const int64_t size = args.a.dtype.bits() / 8;
  LtProduct p;
  p.m = args.m, p.n = args.n, p.k = args.k;
  p.lda = args.a.stride / size, p.ldb = args.b.stride / size, p.ldc = args.ldc;
  p.a_k_major = args.a.k_major, p.b_k_major = args.b.k_major, p.accumulate = args.accumulate;
  p.in = in, p.out = out;
  p.a = args.a.data, p.b = args.b.data, p.c = args.c, p.bias = args.bias;
  return p;
}
bool rows_of_elements(const GemmArgs& args) {
  const int64_t size = args.a.dtype.bits() / 8;
  return args.a.stride % size == 0 && args.b.stride % size == 0;
}

}  // namespace
}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

using namespace gemm;

bool gemm_f32_cublaslt_supports(const GemmArgs& args) {
  return bare_floats(args, dtypes::fp32) && args.c_dtype == dtypes::fp32 && rows_of_elements(args);
}
double gemm_f32_cublaslt_cost(const GemmArgs& args) { return 1500 + tiled_cost(args, 128, 128, 22e3); }
void gemm_f32_cublaslt(const GemmArgs& args) {
  if (!run_cublaslt(*cublaslt(), product_of(args, LtType::kFp32, LtType::kFp32))) gemm_f32_chain512_simt(args);
}

// The bias is fp32, which the library only adds to an fp32 C.
bool gemm_bf16_cublaslt_supports(const GemmArgs& args) {
  const bool bf16 = args.c_dtype == dtypes::bf16;
  return bare_floats(args, dtypes::bf16) &&
         (bf16 ? args.sr == nullptr && args.bias == nullptr : args.c_dtype == dtypes::fp32) && rows_of_elements(args);
}
double gemm_bf16_cublaslt_cost(const GemmArgs& args) { return 1500 + tiled_cost(args, 128, 256, 350e3); }
void gemm_bf16_cublaslt(const GemmArgs& args) {
  const LtType out = args.c_dtype == dtypes::bf16 ? LtType::kBf16 : LtType::kFp32;
  if (!run_cublaslt(*cublaslt(), product_of(args, LtType::kBf16, out))) gemm_f32_chain512_simt(args);
}

// Floats times codes in fp32. The values are exactly those of the definition; the summation order is the library's.
bool gemm_f32_codes_cublaslt_supports(const GemmArgs& args) { return expands(args); }
double gemm_f32_codes_cublaslt_cost(const GemmArgs& args) {
  return gemm_f32_cublaslt_cost(args) + expansion_cost(args);
}
void gemm_f32_codes_cublaslt(const GemmArgs& args) {
  if (!run_expanded(args, [](const LtProduct& p) { return run_cublaslt(*cublaslt(), p); }))
    gemm_f32_chain512_simt(args);
}

// Both sides are contiguous along k, with rows and k in multiples of four (the library's rules for int8). The sums make
// a round trip through memory.
bool gemm_s8_s8_cublaslt_supports(const GemmArgs& args) {
  const ScaleMap &sa = args.a.scale, &sb = args.b.scale;
  return exact_sum(args) && args.a.dtype == dtypes::int8 && args.b.dtype == dtypes::int8 && !args.a.k_major &&
         !args.b.k_major && args.m > 0 && args.n > 0 && args.n % 4 == 0 && args.k > 0 && args.k % 4 == 0 &&
         sa.zero == nullptr && sb.zero == nullptr && sa.offset == nullptr && sb.offset == nullptr &&
         args.row_minus == nullptr && fits_int32(args, 128, 128);
}
double gemm_s8_s8_cublaslt_cost(const GemmArgs& args) {
  const double sums = 10.0 * static_cast<double>(args.m) * static_cast<double>(args.n);
  return 1500 + kLaunchNs + tiled_cost(args, 128, 256, 440e3) + sums / kBytesPerNs;
}
void gemm_s8_s8_cublaslt(const GemmArgs& args) {
  LtProduct p = product_of(args, LtType::kInt8, LtType::kInt32);
  const Workspace sums(args.m * args.n * 4);
  p.c = sums.as<void>();
  p.ldc = args.n;
  p.accumulate = false;
  p.bias = nullptr;
  if (!run_cublaslt(*cublaslt(), p)) return gemm_int_simt(args);
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(std::min<int64_t>(gemm_detail::ceil_div(args.m * args.n, 256), 4096));
  shape.block.x = 256;
  shape.name = "gemm_finish_sums";
  launch(gemm_finish_sums, shape,
         FinishArgs{sums.as<int32_t>(), free_params(operand_of(args.a)), free_params(operand_of(args.b)),
                    output_of(args)});
}

}  // namespace bitgrad::cuda::gemm_impl
