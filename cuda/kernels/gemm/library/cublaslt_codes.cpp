#include "cuda/kernels/gemm/library/cublaslt_codes.h"

#include "bitgrad/base/memory.h"
#include "cuda/kernels/gemm/args.h"
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
