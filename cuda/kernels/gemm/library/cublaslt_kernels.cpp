// Kernels that call cuBLASLt: fp32 and bf16 in the library's own summation order, int8 exactly.
#include "bitgrad/base/memory.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/library/cublaslt.h"
#include "cuda/kernels/gemm/reference/reference.h"
#include "cuda/runtime/runtime.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"

namespace bitgrad::cuda::gemm {
namespace {

// Rows and columns of an operand as stored.
struct Stored {
  int64_t rows, cols;
};
Stored stored(const GemmOperand& x, int64_t free, int64_t k) { return x.k_major ? Stored{k, free} : Stored{free, k}; }

bool is_code(const GemmOperand& x) {
  return x.dtype.is_code() && x.dtype.bits() <= 8 && x.layout == layouts::canonical;
}
bool is_plain(const GemmOperand& x, int64_t free, int64_t k) {
  if (!x.scale.trivial()) return false;
  return (x.dtype == dtypes::fp32 && x.stride % 4 == 0) ||
         (x.dtype == dtypes::bf16 && x.stride == 2 * stored(x, free, k).cols);
}

// An operand as rows of fp32: the original, or a copy.
class Floats {
 public:
  Floats(const GemmOperand& x, int64_t free, int64_t k) {
    const Stored form = stored(x, free, k);
    data_ = static_cast<const float*>(x.data);
    ld_ = x.stride / 4;
    if (x.dtype == dtypes::fp32) return;
    space_.emplace(form.rows * form.cols * 4);
    float* const out = space_->as<float>();
    if (x.dtype == dtypes::bf16) {
      from_bf16(form.rows * form.cols, static_cast<const uint16_t*>(x.data), out);
    } else {
      dequantize({form.rows, form.cols, x.dtype, x.data, x.stride, x.scale, out, form.cols});
    }
    data_ = out;
    ld_ = form.cols;
  }
  const float* data() const { return data_; }
  int64_t ld() const { return ld_; }

 private:
  std::optional<Workspace> space_;
  const float* data_;
  int64_t ld_;
};

double bytes_of(const GemmOperand& x, int64_t free, int64_t k) {
  return x.dtype == dtypes::fp32 ? 0 : operand_bytes(x, free, k) + 4.0 * static_cast<double>(free * k);
}

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

bool expands(const GemmArgs& args) {
  const bool a = is_code(args.a), b = is_code(args.b);
  const bool c = args.c_dtype == dtypes::fp32 ||
                 (args.c_dtype == dtypes::bf16 && !args.accumulate && args.sr == nullptr && args.ldc == args.n);
  return (a || b) && !gemm_is_integer(args) && (a || is_plain(args.a, args.m, args.k)) &&
         (b || is_plain(args.b, args.n, args.k)) && c && args.row_minus == nullptr && args.m > 0 && args.n > 0 &&
         args.k > 0;
}

bool run_expanded(const GemmArgs& args, bool (*product)(const LtProduct&)) {
  const Floats a(args.a, args.m, args.k), b(args.b, args.n, args.k);
  const bool narrow = args.c_dtype == dtypes::bf16;
  std::optional<Workspace> wide;
  if (narrow) wide.emplace(args.m * args.n * 4);
  LtProduct p;
  p.m = args.m, p.n = args.n, p.k = args.k;
  p.lda = a.ld(), p.ldb = b.ld(), p.ldc = args.ldc;
  p.a_k_major = args.a.k_major, p.b_k_major = args.b.k_major, p.accumulate = args.accumulate;
  p.a = a.data(), p.b = b.data(), p.bias = args.bias;
  p.c = narrow ? wide->as<void>() : args.c;
  if (!product(p)) return false;
  if (narrow) to_bf16(args.m * args.n, wide->as<float>(), static_cast<uint16_t*>(args.c));
  return true;
}

double expansion_cost(const GemmArgs& args) {
  double bytes = bytes_of(args.a, args.m, args.k) + bytes_of(args.b, args.n, args.k);
  if (args.c_dtype == dtypes::bf16) bytes += 6.0 * static_cast<double>(args.m * args.n);
  return 2 * kLaunchNs + bytes / kBytesPerNs;
}

}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

using namespace gemm;

bool gemm_f32_cublaslt_supports(const GemmArgs& args) {
  return bare_floats(args, dtypes::fp32) && args.c_dtype == dtypes::fp32 && rows_of_elements(args) &&
         cublaslt() != nullptr;
}
double gemm_f32_cublaslt_cost(const GemmArgs& args) { return 1500 + tiled_cost(args, 128, 128, 22e3); }
void gemm_f32_cublaslt(const GemmArgs& args) {
  if (!run_cublaslt(*cublaslt(), product_of(args, LtType::kFp32, LtType::kFp32))) gemm_f32_chain512_simt(args);
}

// The bias is fp32, which the library only adds to an fp32 C.
bool gemm_bf16_cublaslt_supports(const GemmArgs& args) {
  const bool bf16 = args.c_dtype == dtypes::bf16;
  return bare_floats(args, dtypes::bf16) &&
         (bf16 ? args.sr == nullptr && args.bias == nullptr : args.c_dtype == dtypes::fp32) && rows_of_elements(args) &&
         cublaslt() != nullptr;
}
double gemm_bf16_cublaslt_cost(const GemmArgs& args) { return 1500 + tiled_cost(args, 128, 256, 350e3); }
void gemm_bf16_cublaslt(const GemmArgs& args) {
  const LtType out = args.c_dtype == dtypes::bf16 ? LtType::kBf16 : LtType::kFp32;
  if (!run_cublaslt(*cublaslt(), product_of(args, LtType::kBf16, out))) gemm_f32_chain512_simt(args);
}

// Floats times codes in fp32. The values are exactly those of the definition; the summation order is the library's.
bool gemm_f32_codes_cublaslt_supports(const GemmArgs& args) { return expands(args) && cublaslt() != nullptr; }
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
         args.row_minus == nullptr && fits_int32(args, 128, 128) && cublaslt() != nullptr;
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
