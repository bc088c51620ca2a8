// Family quantize: dequantizes codes and elements of wide dtypes. One thread per octet of a row.
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/quantize/element.h"

namespace bitgrad::cuda {

struct DequantizeCall {
  int64_t rows, cols;
  const uint8_t* data;
  int64_t stride;
  ScaleMap scale;
  float* y;
  int64_t ldy;
  bool wide;  // every row of y is aligned to four elements
};

// s * (q - z), s * q + m or s * q, rounding each operation once.
BITGRAD_DEVICE inline void store_values(const DequantizeCall& call, const Cell& at, const Numbers8& q) {
  const int64_t c = 8 * at.col, count = call.cols - c;
  Numbers8 y = q;
  if (!(call.scale.scale == nullptr && call.scale.zero == nullptr && call.scale.offset == nullptr)) {
    Params p(call.scale, at.row, c, false);
    for (int k = 0; k < 8; ++k) {
      if (k >= count) continue;
      if (k > 0) p.advance();
      if (call.scale.zero != nullptr)
        y.v[k] = p.scale * (q.v[k] - static_cast<float>(p.zero));
      else if (call.scale.offset != nullptr)
        y.v[k] = p.scale * q.v[k] + p.offset;
      else
        y.v[k] = p.scale * q.v[k];
    }
  }
  store_numbers(call.y + at.row * call.ldy + c, count, call.wide, y);
}

// Integers: two's complement (flip is the sign bit) or unsigned (flip is 0). Signs: 2 raw - 1.
BITGRAD_GLOBAL void dequantize_integers_kernel(DequantizeCall call, CodeRows codes, int flip, bool sign) {
  const int64_t octets = (call.cols + 7) / 8;
  for (int64_t i = thread_index(); i < call.rows * octets; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    const uint64_t bytes = spread_octet(load_octet(codes, at.row, at.col, call.cols), codes.bits);
    Numbers8 q;
    for (int k = 0; k < 8; ++k) {
      const int raw = static_cast<int>(bytes >> (8 * k) & 255u);
      q.v[k] = static_cast<float>(sign ? 2 * raw - 1 : (raw ^ flip) - flip);
    }
    store_values(call, at, q);
  }
}

struct CodeNumbers {
  float v[256];
};
BITGRAD_GLOBAL void dequantize_codebook_kernel(DequantizeCall call, CodeRows codes, CodeNumbers table) {
  __shared__ float number[256];
  for (int k = static_cast<int>(threadIdx.x); k < 1 << codes.bits; k += static_cast<int>(blockDim.x))
    number[k] = table.v[k];
  __syncthreads();
  const int64_t octets = (call.cols + 7) / 8;
  for (int64_t i = thread_index(); i < call.rows * octets; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    const uint64_t bytes = spread_octet(load_octet(codes, at.row, at.col, call.cols), codes.bits);
    Numbers8 q;
    for (int k = 0; k < 8; ++k) q.v[k] = number[bytes >> (8 * k) & 255u];
    store_values(call, at, q);
  }
}

struct Bf16 {
  uint16_t bits;
};
BITGRAD_DEVICE inline float as_float(float x) { return x; }
BITGRAD_DEVICE inline float as_float(int32_t x) { return static_cast<float>(x); }
BITGRAD_DEVICE inline float as_float(int64_t x) { return static_cast<float>(x); }
BITGRAD_DEVICE inline float as_float(Bf16 x) { return bf16_to_float(x.bits); }

template <typename T>
BITGRAD_GLOBAL void dequantize_wide_kernel(DequantizeCall call) {
  const int64_t octets = (call.cols + 7) / 8;
  for (int64_t i = thread_index(); i < call.rows * octets; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    const T* from = reinterpret_cast<const T*>(call.data + at.row * call.stride) + 8 * at.col;
    Numbers8 q{};
    for (int k = 0; k < 8; ++k)
      if (8 * at.col + k < call.cols) q.v[k] = as_float(from[k]);
    store_values(call, at, q);
  }
}

namespace {

struct WideKernel {
  DType dtype;
  void (*kernel)(DequantizeCall);
};
constexpr WideKernel kWideKernels[] = {{dtypes::fp32, dequantize_wide_kernel<float>},
                                       {dtypes::bf16, dequantize_wide_kernel<Bf16>},
                                       {dtypes::int32, dequantize_wide_kernel<int32_t>},
                                       {dtypes::int64, dequantize_wide_kernel<int64_t>}};

}  // namespace

void dequantize_cuda(const DequantizeArgs& args) {
  const DequantizeCall call{args.rows, args.cols, static_cast<const uint8_t*>(args.codes), args.stride, args.scale,
                            args.y,    args.ldy,  rows_lie_on_four(args.y, args.ldy)};
  const LaunchShape shape = cover(args.rows * ceil_div(args.cols, 8), "dequantize_cuda");
  if (!args.dtype.is_code()) {
    for (const WideKernel& wide : kWideKernels)
      if (wide.dtype == args.dtype) return launch(wide.kernel, shape, call);
    if (args.dtype == dtypes::fp64) bitgrad::detail::fail_fp64_on_device("dequantize");
    fail_with(ErrorCode::kDevice, "dequantize", "there is no kernel of dtype ", args.dtype, " on ",
              to_string(current_device()), ". Use the CPU (device.kind=cpu).");
  }
  const DTypeInfo& info = args.dtype.info();
  const CodeRows codes = code_rows(args.codes, args.stride, info.bits, args.cols);
  if (info.kind == DTypeKind::kCodebook) {
    CodeNumbers table;
    for (int i = 0; i < 256; ++i) table.v[i] = code_values(args.dtype)[i];
    return launch(dequantize_codebook_kernel, shape, call, codes, table);
  }
  const int flip = info.kind == DTypeKind::kInt ? 1 << (info.bits - 1) : 0;
  launch(dequantize_integers_kernel, shape, call, codes, flip, info.kind == DTypeKind::kSign);
}

}  // namespace bitgrad::cuda
